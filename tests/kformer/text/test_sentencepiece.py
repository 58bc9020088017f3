import io
import random

import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from kformer.text import SentencePieceTokenizer, normalize

BOTH = pytest.mark.parametrize("model_type", ["unigram", "bpe"])
LEARNED = pytest.mark.parametrize("model_type", ["unigram", "bpe", "character"])
WORDS = "the cat sat on a mat while many dogs ran over green hills and along rivers".split()
LINES = [" ".join(random.Random(seed).choices(WORDS, k=6)) for seed in range(200)]


def echo(tokenizer, text) -> str:
    return tokenizer.detokenize(tokenizer.tokenize([text])).numpy()[0].decode()


def normal(text) -> str:
    return normalize([text]).numpy()[0].decode()


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.one_of(st.text(), st.text(st.sampled_from("a▁▅ \u0301⁇<s>/\x010"))))
def test_any_text_comes_back(subwords, text):
    assert echo(subwords, text) == normal(text)


@pytest.mark.parametrize(
    "text", ["a  b   c", "▁", "▁▁a▁ ▁b▁", "▅", "⁇", "a ⁇ b", "\ufffd", "\U0010ffff", "𝔘𓀀"]
)
def test_awkward_text_comes_back(subwords, text):
    assert echo(subwords, text) == text


def test_the_space_mark_of_sentencepiece_is_not_a_space(subwords):
    mark, space = subwords.tokenize(["a▁b", "a b"]).to_list()
    assert mark != space


def test_generated_bytes_cannot_break_a_line(subwords):
    newline = subwords.pieces().index("<0x0A>")
    a, b = subwords.tokenize(["a", "b"]).to_list()
    assert subwords.detokenize([[*a, newline, *b]]).numpy()[0].split(b" ") in (
        [b"a", b"b"],
        [b"a", b"", b"b"],  # A word begins with a space of its own.
    )


def test_generated_half_characters_are_replaced(subwords):
    half = subwords.pieces().index("<0xE6>")
    assert subwords.detokenize([[half]]).numpy()[0].decode() == "\ufffd"


def test_ids_equal_those_of_the_sentencepiece_package(subwords):
    content = subwords._to_bytes()
    peer = sentencepiece.SentencePieceProcessor(model_proto=content)
    for text in ("don't, l'eau 3.14 我爱你 😀", "the green  hills", "<s> <0x20>⁇"):
        assert subwords.tokenize([text]).to_list() == [peer.encode(text)]


@BOTH
def test_asking_for_too_many_pieces_gives_fewer(model_type):
    tokenizer = SentencePieceTokenizer.learn(LINES, 30_000, model_type)
    assert 260 < tokenizer.vocab_size < 30_000
    assert len(tokenizer.tokenize(["the cat"]).to_list()[0]) < 7


@BOTH
def test_gives_exactly_what_the_texts_support(model_type):
    assert SentencePieceTokenizer.learn(LINES, 285, model_type).vocab_size == 285


@BOTH
@pytest.mark.parametrize("vocab_size", [-1, 0, 260, 261, 270])
def test_too_few_pieces_for_the_characters_is_the_users_error(model_type, vocab_size):
    with pytest.raises(InputError, match=rf"26\d|27\d.*Received: {vocab_size}"):
        SentencePieceTokenizer.learn(LINES, vocab_size, model_type)


@BOTH
def test_the_named_minimum_is_enough(model_type):
    with pytest.raises(InputError, match="at least") as raised:
        SentencePieceTokenizer.learn(LINES, 261, model_type)
    minimum = int(str(raised.value).split("at least ")[1].split()[0])
    assert SentencePieceTokenizer.learn(LINES, minimum, model_type).vocab_size == minimum


@pytest.mark.parametrize("texts", [[], iter([]), ["", " \n"], ["\x00"]])
def test_nothing_to_learn_from_is_the_users_error(texts):
    with pytest.raises(InputError, match="no text"):
        SentencePieceTokenizer.learn(texts, 1000)


@pytest.mark.parametrize(
    "arguments",
    [
        {"model_type": "word"},
        {"vocab_size": 260},
        {"character_coverage": 0.97},
        {"max_sentences": 0},
    ],
)
def test_a_wrong_argument_is_the_users_error(arguments):
    with pytest.raises(InputError, match="Received"):
        SentencePieceTokenizer.learn(LINES, **{"vocab_size": 300, **arguments})


@LEARNED
def test_learning_is_deterministic(model_type):
    first, second = (
        SentencePieceTokenizer.learn(iter(LINES), 300, model_type)._to_bytes() for _ in range(2)
    )
    assert first == second


def test_a_sample_is_drawn_by_its_seed_from_all_of_the_texts():
    lines = [chr(ord("a") + number) * 3 for number in range(26)]

    def letters(seed):
        tokenizer = SentencePieceTokenizer.learn(lines, 400, max_sentences=10, seed=seed)
        return "".join(sorted(set("".join(tokenizer.pieces()[260:])) - {"▁"}))

    assert letters(1) == letters(1)
    assert len(letters(1)) == 10
    assert len({letters(seed) for seed in range(5)}) > 1
    assert letters(1)[-1] > "j"


@LEARNED
def test_learns_from_the_normalized_spelling(model_type):
    composed, decomposed = (
        SentencePieceTokenizer.learn([text] * 20, 300, model_type).pieces()
        for text in ("café\u00a0é", " cafe\u0301 e\u0301\r\n")
    )
    assert composed == decomposed
    assert any("é" in piece for piece in composed)


@LEARNED
def test_very_long_lines_are_learned_from(model_type):
    # As many pieces as characters at most: no byte was needed.
    tokenizer = SentencePieceTokenizer.learn(["我爱你" * 30_000], 300, model_type)
    assert len(tokenizer.tokenize(["我爱你我爱你"]).to_list()[0]) <= 7


@BOTH
def test_lines_with_marks_of_the_trainer_are_learned_from(model_type):
    tokenizer = SentencePieceTokenizer.learn(["▁cat▅ <s> cat"] * 50, 300, model_type)
    assert echo(tokenizer, "▁cat▅ <s>") == "▁cat▅ <s>"
    assert any("cat" in piece for piece in tokenizer.pieces())


def test_a_model_with_other_reserved_ids_is_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match="first ids must be"):
        SentencePieceTokenizer(model.getvalue())


def test_tokenizers_built_after_seeding_work(build):
    tf.keras.utils.set_random_seed(0)
    assert echo(build("bpe"), "the cat") == "the cat"


def test_an_error_while_reading_the_texts_arrives_as_it_was_raised():
    def texts():
        yield from LINES * 10
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        SentencePieceTokenizer.learn(texts(), 300)
