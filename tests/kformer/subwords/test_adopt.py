"""Models that others learned: our ids, their way of splitting."""

import io

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.normal_form import normal_form
from kformer.subwords.adopt import adopt
from kformer.subwords.encode import Encoder
from kformer.subwords.pieces import RESERVED_PIECES
from kformer.text import SentencePieceTokenizer

T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
ALBERT = {
    "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "pad_piece": "<pad>", "unk_piece": "<unk>",
    "bos_piece": "[CLS]", "eos_piece": "[SEP]", "control_symbols": ["[MASK]"],
}  # fmt: skip
LLAMA = {
    "byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True,
    "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
}  # fmt: skip
SYMBOLS = {"user_defined_symbols": ["<mask>", "▁▁", "the c"], "self_test_sample_size": 9}
SUFFIX = {"treat_whitespace_as_suffix": True, "unk_piece": "[UNK]", "unk_surface": "?"}
MAKES = {"plain": {}, "t5": T5, "albert": ALBERT, "llama": LLAMA, "symbols": SYMBOLS,
         "suffix": SUFFIX}  # fmt: skip
TEXT = st.one_of(st.text(), st.text(st.sampled_from("the cat<mask>[SEP]  ▁ﬁ１"), max_size=40))


@pytest.fixture(scope="session")
def originals(lines):
    return {
        (model_type, make): trained(lines, model_type=model_type, **options)
        for model_type in ("unigram", "bpe", "word", "char")
        for make, options in MAKES.items()
    }


@pytest.fixture(params=MAKES)
def make(request):
    return request.param


@pytest.fixture(params=["unigram", "bpe", "word", "char"])
def original(request, originals, make):
    return originals[request.param, make]


def trained(lines, **options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2,
        **{"vocab_size": 400, "hard_vocab_limit": False, **options},
    )  # fmt: skip
    return model.getvalue()


def processors(original):
    return [
        sentencepiece.SentencePieceProcessor(model_proto=model)
        for model in (original, adopt(original))
    ]


def all_pieces(processor) -> list[str]:
    return processor.id_to_piece(list(range(processor.vocab_size())))


def test_the_reserved_ids_are_ours_and_the_others_keep_their_order(original):
    theirs, ours = processors(original)
    assert (ours.pad_id(), ours.unk_id(), ours.bos_id(), ours.eos_id()) == (
        PAD_ID, UNK_ID, START_ID, END_ID
    )  # fmt: skip
    special = {theirs.pad_id(), theirs.unk_id(), theirs.bos_id(), theirs.eos_id()}
    others = [piece for id, piece in enumerate(all_pieces(theirs)) if id not in special]
    assert all_pieces(ours) == [*RESERVED_PIECES, *others]
    assert ours.decode([UNK_ID]).strip() == "⁇"


def test_the_corpus_is_cut_as_before(original, lines):
    theirs, ours = processors(original)
    assert ours.encode(lines, out_type=str) == theirs.encode(lines, out_type=str)


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(TEXT))
def test_any_text_is_cut_as_before_and_in_the_graph_too(original, texts):
    texts = [normal_form(text) for text in texts]
    if any(name in text for text in texts for name in RESERVED_PIECES):
        return
    theirs, ours = processors(original)
    assert ours.encode(texts, out_type=str) == theirs.encode(texts, out_type=str)
    adopted = adopt(original)
    ids, _ = Encoder(adopted).encode(texts)
    assert SentencePieceTokenizer(adopted).tokenize(texts or [""]).flat_values.numpy().tolist() == (
        ids.tolist()
    )


def test_a_model_with_our_ids_comes_back_as_it_is(model, original):
    assert adopt(model) == model
    assert adopt(adopt(original)) == adopt(original)


def test_a_symbol_with_a_reserved_name_becomes_the_reserved_piece(lines):
    adopted = adopt(trained(lines, user_defined_symbols=["<pad>", "<mask>"]))
    ids, _ = Encoder(adopted).encode(["a <pad> <mask>"])
    assert PAD_ID not in ids
    pieces = all_pieces(sentencepiece.SentencePieceProcessor(model_proto=adopted))
    assert pieces.count("<pad>") == 1 and pieces.index("<mask>") in ids


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe\x00", b"\n\x00"])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(ValueError, match="empty|not a SentencePiece model"):
        adopt(content)
