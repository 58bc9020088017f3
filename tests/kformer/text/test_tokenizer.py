"""What every kind of tokenizer keeps."""

import json
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from kformer.text import END_ID, PAD_ID, RESERVED_PIECES, START_ID, UNK_ID, Tokenizers, normalize

KNOWN = [
    "don't, l'eau 3.14 我爱你 😀",
    "the cat",
    "#",
    "##x",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    unicodedata.normalize("NFC", "がぎぐげご ぱぴぷ ガギ"),
    unicodedata.normalize("NFD", "がぎぐげご ぱぴぷ ガギ"),
    "学校へ行きます。",
    "co\u00adop שלום\u200f ab\ufeffcd",
    "👩\u200d👩\u200d👧",
    "❤\ufe0f",
    "می\u200cخواهم",
    " the\u00a0cat\tsat\r\n",
    "</s>",
    "",
    " \n ",
]
ODD = [*KNOWN, "the  cat\u3000 \u2028sat", " ##x  #", "never seen: ŝ̀ \x00\x85"]


def texts_of(tensor) -> list[str]:
    return [text.decode() for text in tensor.numpy()]


@pytest.mark.parametrize("text", KNOWN)
def test_known_text_comes_back(tokenizer, text):
    ids = tokenizer.tokenize([text])
    assert UNK_ID not in ids.flat_values.numpy()
    assert texts_of(tokenizer.detokenize(ids)) == texts_of(normalize([text]))


@pytest.mark.parametrize("text", ["café naïve", "がぎぐ ぱぴぷ", "Å Wörter", "क़ ऩ", "각"])
def test_composed_and_decomposed_spellings_get_the_same_ids(tokenizer, text):
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert composed != decomposed
    first, second = tokenizer.tokenize([composed, decomposed]).to_list()
    assert first == second


@pytest.mark.parametrize("text", ["我你爱", "学行校へすま"])
def test_unseen_text_of_a_script_without_spaces_is_no_unknown_word(tokenizer, text):
    (ids,) = tokenizer.tokenize([text]).to_list()
    assert len(ids) >= 3 and UNK_ID not in ids
    assert texts_of(tokenizer.detokenize([ids])) == [text]


@pytest.mark.parametrize("form", ["\u200f", "\u00ad", "\ufeff"])
def test_invisible_characters_inside_a_word_survive(kind, learn, form):
    text = f"ab{form}cd {form}ef"
    tokenizer = learn(kind, [text] * 20)
    assert texts_of(tokenizer.detokenize(tokenizer.tokenize([text]))) == [text]


def test_a_vocabulary_larger_than_the_texts_is_what_they_have(kind, learn):
    tokenizer = learn(kind, ["the cat sat"] * 20, 30_000)
    assert tokenizer.vocab_size < 400
    assert texts_of(tokenizer.detokenize(tokenizer.tokenize(["the cat"]))) == ["the cat"]


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.one_of(st.binary(), st.text().map(str.encode)), max_size=4), st.data())
def test_nothing_makes_it_fail(tokenizer, texts, data):
    ids = tokenizer.tokenize(tf.constant(texts, tf.string, [len(texts)]))
    assert ids.dtype == tf.int32 and ids.nrows() == len(texts)
    assert not np.isin(ids.flat_values, [PAD_ID, START_ID, END_ID]).any()
    shown = texts_of(tokenizer.detokenize(ids))
    assert shown == texts_of(normalize(shown))
    any_ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=9))
    (generated,) = texts_of(tokenizer.detokenize(tf.constant([any_ids], tf.int32)))
    assert generated == texts_of(normalize([generated]))[0]


@pytest.mark.parametrize("name", [*RESERVED_PIECES, "<0x41>", "<0x0A>"])
def test_a_reserved_name_in_a_text_is_ordinary(tokenizer, name):
    text = f"a{name}b {name}"
    ids = tokenizer.tokenize([text, name])
    assert not np.isin(ids.flat_values, [PAD_ID, START_ID, END_ID]).any()
    if name != "<0x0A>":  # The only one that the words were not learned with.
        assert texts_of(tokenizer.detokenize(ids))[1] == name


def test_reserved_pieces_come_first(tokenizer):
    assert tuple(tokenizer.pieces()[:4]) == RESERVED_PIECES
    assert len(tokenizer.pieces()) == len(set(tokenizer.pieces())) == tokenizer.vocab_size


def test_reading_stops_at_the_first_end(tokenizer):
    (ids,) = tokenizer.tokenize(["the cat"]).to_list()
    padded = [[START_ID, *ids, END_ID, *ids, END_ID, PAD_ID]]
    for same in (tf.constant(padded), tf.ragged.constant(padded), np.array(padded, np.int64)):
        assert texts_of(tokenizer.detokenize(same)) == ["the cat"]


def test_padding_and_start_never_show(tokenizer):
    (known,) = tokenizer.tokenize(["the cat"]).to_list()
    ids = [[PAD_ID, START_ID, known[0], PAD_ID, *known[1:], START_ID, PAD_ID]]
    assert texts_of(tokenizer.detokenize(ids)) == ["the cat"]


def test_ids_after_the_end_are_never_read(tokenizer):
    assert texts_of(tokenizer.detokenize([[END_ID, -1, 10**6]])) == [""]


def test_unknown_shows_as_a_mark(tokenizer):
    assert texts_of(tokenizer.detokenize([[UNK_ID]])) == ["⁇"]


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0)])
def test_detokenizes_empty_shapes(tokenizer, shape):
    assert texts_of(tokenizer.detokenize(tf.zeros(shape, tf.int32))) == [""] * shape[0]


def test_a_batch_of_none_and_a_batch_of_empty_texts(tokenizer):
    none = tokenizer.tokenize(tf.zeros([0], tf.string))
    assert none.dtype == tf.int32 and none.to_list() == []
    assert texts_of(tokenizer.detokenize(none)) == []
    assert tokenizer.tokenize(["", "  ", "\n"]).to_list() == [[], [], []]


@pytest.mark.parametrize("wrong", [-1, 10**6, 2**31 - 1, 2**32 + 5])
@pytest.mark.parametrize("in_graph", [False, True])
def test_ids_out_of_range_raise(build, wrong, in_graph):
    for kind in ("unigram", "words"):
        detokenize = build(kind).detokenize
        detokenize = tf.function(detokenize) if in_graph else detokenize
        with pytest.raises(tf.errors.InvalidArgumentError):
            detokenize(tf.constant([[5, wrong]], tf.int64))


def test_the_first_id_past_the_vocabulary_raises(tokenizer):
    tokenizer.detokenize([[tokenizer.vocab_size - 1]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="below vocab_size"):
        tokenizer.detokenize([[tokenizer.vocab_size]])


def test_ids_of_one_axis_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"Received: \(3,\)"):
        tokenizer.detokenize([5, 6, 7])


def test_graph_equals_eager(tokenizer):
    tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    detokenize = tf.function(
        tokenizer.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    for texts in (KNOWN, ["a"], [""]):
        ids = tokenize(tf.constant(texts))
        assert ids.to_list() == tokenizer.tokenize(texts).to_list()
        assert texts_of(detokenize(ids.to_tensor(PAD_ID))) == texts_of(tokenizer.detokenize(ids))


@pytest.mark.parametrize(
    "text",
    ["don't, l'eau 3.14 我爱你 😀", "The  cat   sat", "# ##x of Wörter, naïve café!", "▁ ⁇ ▁"],
)
def test_pieces_know_their_word(tokenizer, text):
    """The pieces of each word, put together by themselves, are the word."""
    (ids,) = tokenizer.tokenize([text]).to_list()
    vocabulary = tokenizer.pieces()
    words = tokenizer.word_indices([vocabulary[id] for id in ids])
    assert words == sorted(words) and set(words) == set(range(len(text.split())))
    grouped = [[id for id, word in zip(ids, words, strict=True) if word == n] for n in set(words)]
    assert texts_of(tokenizer.detokenize(tf.ragged.constant(grouped))) == text.split()


def test_no_pieces_have_no_words(tokenizer):
    assert tokenizer.word_indices([]) == []


class Echo(tf.Module):
    def __init__(self, tokenizers):
        super().__init__()
        self.tokenizers = tokenizers

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def ids(self, texts):
        return self.tokenizers.source.tokenize(texts).to_tensor(PAD_ID)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def echo(self, texts):
        return self.tokenizers.target.detokenize(self.tokenizers.target.tokenize(texts))


FRESH = """
import json, sys
import tensorflow as tf
from kformer.text import load_tokenizer
texts, kinds, root = json.load(sys.stdin)
result = {}
for kind in kinds:
    tokenizer = load_tokenizer(f"{root}/files", kind)
    model = tf.saved_model.load(f"{root}/{kind}")
    result[kind] = [
        tokenizer.tokenize(texts).to_list(),
        model.ids(tf.constant(texts)).numpy().tolist(),
        [text.decode() for text in model.echo(tf.constant(texts)).numpy()],
    ]
json.dump(result, sys.stdout)
"""


def test_a_fresh_process_gives_the_same_ids_from_file_and_from_saved_model(
    build, contents, tmp_path
):
    kinds = list(contents)
    expected = {}
    for kind in kinds:
        tokenizer = build(kind)
        tokenizer.save(tmp_path / "files" / f"{kind}{tokenizer.suffix}")
        tf.saved_model.save(Echo(Tokenizers(tokenizer, tokenizer)), str(tmp_path / kind))
        ids = tokenizer.tokenize(ODD)
        expected[kind] = [
            ids.to_list(),
            ids.to_tensor(PAD_ID).numpy().tolist(),
            texts_of(tokenizer.detokenize(ids)),
        ]
    fresh = subprocess.run(
        [sys.executable, "-c", FRESH],
        input=json.dumps([ODD, kinds, str(tmp_path)]),
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    assert fresh.returncode == 0, fresh.stderr[-2000:]
    assert json.loads(fresh.stdout) == expected


def test_loading_keeps_ids_and_pieces(tokenizer, tmp_path):
    path = tmp_path / f"deep/er/t{tokenizer.suffix}"
    tokenizer.save(path)
    loaded = type(tokenizer).load(path)
    assert loaded.pieces() == tokenizer.pieces()
    assert loaded.tokenize(ODD).to_list() == tokenizer.tokenize(ODD).to_list()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_vocabulary_written_over_another_is_the_one_that_is_loaded(tokenizer, build, tmp_path):
    path = tmp_path / f"t{tokenizer.suffix}"
    others = ["bytes", "bpe"] if tokenizer.suffix == ".model" else ["words"]
    for written in [*map(build, others), tokenizer]:
        written.save(path)
        loaded = type(tokenizer).load(path)
        assert loaded.pieces() == written.pieces()
        assert loaded.tokenize(KNOWN).to_list() == written.tokenize(KNOWN).to_list()


def test_loading_a_missing_or_damaged_file_names_it(tokenizer, tmp_path):
    path = tmp_path / f"t{tokenizer.suffix}"
    with pytest.raises(InputError, match=str(path)):
        type(tokenizer).load(path)
    for damaged in (b"", b"garbage", b"\xff\xfe\x00"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=str(path)):
            type(tokenizer).load(path)
