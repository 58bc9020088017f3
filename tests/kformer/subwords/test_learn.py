"""Vocabularies learned without TensorFlow. How subwords are learned: see the tokenizers' tests."""

import subprocess
import sys
import unicodedata

import pytest
import sentencepiece

from kformer.errors import InputError
from kformer.subwords.learn import byte_model, learn
from kformer.subwords.pieces import RESERVED_PIECES

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def pieces_of(model) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return processor.id_to_piece(list(range(processor.vocab_size())))


def test_nothing_here_loads_tensorflow():
    program = """
import sys
import kformer.normal_form, kformer.subwords.adopt, kformer.subwords.encode, kformer.subwords.learn
model = kformer.subwords.learn.learn(["the cat"] * 9, 300)
kformer.subwords.encode.Encoder(kformer.subwords.adopt.adopt(model)).encode(["the cat"])
sys.exit("tensorflow" in sys.modules)
"""
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0


@pytest.mark.parametrize("kind", ["unigram", "bpe", "character"])
def test_bytes_and_strings_in_any_normal_form_give_the_same_vocabulary(kind):
    texts = ["naïve café ▁", "我爱你\u00a0がぎ"] * 9
    decomposed = [unicodedata.normalize("NFD", text) + "\x00 " for text in texts]
    expected = learn(texts, 330, kind)
    assert learn((text.encode() for text in decomposed), 330, kind) == expected
    assert pieces_of(expected)[:260] == [*RESERVED_PIECES, *BYTES]


def test_characters_are_the_most_frequent_ones():
    texts = ["bbbb aaa cc d"] * 9
    # Among equals the lower code point first.
    assert pieces_of(learn(texts, 400, "character"))[260:] == ["b", "a", "▁", "c", "d"]
    assert pieces_of(learn(texts, 262, "character"))[260:] == ["b", "a"]


def test_the_rarest_characters_fall_back_to_bytes():
    model = learn(["ab" * 500, "我"], 400, "character", character_coverage=0.99)
    assert "我" not in pieces_of(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.encode("a我", out_type=str) == ["a", "<0xE6>", "<0x88>", "<0x91>"]


def test_a_space_too_rare_for_a_piece_is_one_byte():
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=learn(["你好我爱" * 50, "a b"], 262, "character")
    )
    assert processor.encode("a 好", out_type=str)[1] == "<0x20>"
    assert processor.decode(processor.encode("a  好 ")) == "a  好 "


def test_the_ids_of_the_byte_model_are_bytes():
    model = byte_model()
    assert model == byte_model()
    assert pieces_of(model) == [*RESERVED_PIECES, *BYTES]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in ("a b", " don't  ", "我爱你 😀", "<s></s><0x41>⁇ \ufffd"):
        assert processor.encode(text) == [4 + byte for byte in text.encode()]
        assert processor.decode(processor.encode(text)) == text


def test_a_kind_that_is_none_is_the_users_error():
    with pytest.raises(InputError, match="Received: 'word'"):
        learn(["a"], 300, "word")
