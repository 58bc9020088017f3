import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from kformer.text import RESERVED_PIECES, UNK_ID, WordTokenizer, normalize
from kformer.text.words import JOINER


def echo(tokenizer, text) -> str:
    return tokenizer.detokenize(tokenizer.tokenize([text])).numpy()[0].decode()


def split(text) -> list[str]:
    return WordTokenizer.learn([text]).pieces()[4:]


@settings(deadline=None, max_examples=60)
@given(st.one_of(st.text(), st.text(st.sampled_from(f"a1 ,'{JOINER}\u00b7我\u0301\u200d"))))
def test_text_comes_back_if_its_words_are_known(text):
    normal = normalize([text]).numpy()[0].decode()
    if normal:
        assert echo(WordTokenizer.learn([text]), text) == re.sub(" +", " ", normal)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("don't", {"don", "·'", "·t"}),
        ("3.14", {"3", "·.", "·14"}),
        ("(a b)", {"(", "·a", "b", "·)"}),
        ("我爱 你", {"我", "·爱", "你"}),
        ("नमस्ते", {"नमस्ते"}),
        ("❤\ufe0f", {"❤\ufe0f"}),
        ("a - b", {"a", "-", "b"}),
    ],
)
def test_where_texts_are_split(text, pieces):
    assert set(split(text)) == {piece.replace("·", JOINER) for piece in pieces}


def test_no_normalized_text_holds_the_joiner():
    assert unicodedata.normalize("NFC", JOINER) == "\u00b7"
    tokenizer = WordTokenizer.learn(["a b", f"a{JOINER}b", "a \u00b7 b"])
    assert echo(tokenizer, f"a{JOINER}b") == "a\u00b7b"
    assert echo(tokenizer, f"a {JOINER} b") == "a \u00b7 b"


def test_an_unknown_word_is_one_unknown_id():
    tokenizer = WordTokenizer.learn(["the cat sat"])
    ids = tokenizer.tokenize(["the elephant sat"]).to_list()[0]
    assert ids.count(UNK_ID) == 1 and len(ids) == 3
    assert echo(tokenizer, "the elephant sat") == "the ⁇ sat"


def test_the_most_frequent_words_are_kept():
    texts = ["c b a", "c b", "c d"]
    assert WordTokenizer.learn(texts).pieces()[4:] == ["c", "b", "a", "d"]
    assert WordTokenizer.learn(texts, vocab_size=6).pieces() == [*RESERVED_PIECES, "c", "b"]
    assert WordTokenizer.learn(texts, min_frequency=2).pieces()[4:] == ["c", "b"]


@pytest.mark.parametrize("texts", [[], iter([]), ["", " \n"]])
def test_nothing_to_learn_from_is_the_users_error(texts):
    with pytest.raises(InputError, match="no text"):
        WordTokenizer.learn(texts)


@pytest.mark.parametrize("arguments", [{"vocab_size": 4}, {"min_frequency": 9}])
def test_arguments_that_leave_no_word_are_the_users_error(arguments):
    with pytest.raises(InputError, match="Received"):
        WordTokenizer.learn(["a a b"], **arguments)


def test_the_file_is_one_word_a_line(tmp_path):
    path = tmp_path / "words.txt"
    WordTokenizer.learn(["don't 我\u2028x\x85y"]).save(path)
    lines = path.read_bytes().decode().split("\n")
    assert lines[:4] == list(RESERVED_PIECES) and lines[-1] == ""
    expected = ["don", "x", "y", f"{JOINER}'", f"{JOINER}t", "我"]
    assert lines[4:-1] == expected


def test_a_file_touched_by_a_windows_editor_still_loads(tmp_path):
    path = tmp_path / "words.txt"
    tokenizer = WordTokenizer.learn(["the cat"])
    tokenizer.save(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert WordTokenizer.load(path).pieces() == tokenizer.pieces()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["the"], "first lines"),
        ([*RESERVED_PIECES, "a", "b", "a"], "line 7 repeats 'a' of line 5"),
        ([*RESERVED_PIECES, "a", ""], "line 6"),
        ([*RESERVED_PIECES, "a b"], "line 5"),
    ],
)
def test_a_damaged_file_is_refused_by_line(tmp_path, lines, message):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"{path}.*{message}"):
        WordTokenizer.load(path)


def test_the_joiner_never_shows_even_at_the_start_of_a_generated_text():
    tokenizer = WordTokenizer.learn(["don't"])
    attached = tokenizer.pieces().index(f"{JOINER}t")
    assert tokenizer.detokenize([[attached, attached]]).numpy()[0] == b"tt"
