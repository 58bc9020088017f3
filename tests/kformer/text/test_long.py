"""Cutting long texts: nothing lost, nothing too long, and cut where a reader would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kformer.text import split_long


def count_words(texts):
    return [len(text.split()) for text in texts]


def count_characters(texts):
    return [len(text.strip()) for text in texts]


def texts_of(text, max_tokens, count=count_words):
    return [part.text for part in split_long(text, max_tokens, count)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One two. Three four. Five six.", ["One two. Three four.", "Five six."]),
        ("One two three! Four? Five six…", ["One two three! Four?", "Five six…"]),
        ('He said "one two." Then three.', ['He said "one two."', "Then three."]),
        ("one two three four five six", ["one two three four", "five six"]),
        ("One. two three four five six seven. Eight.",
         ["One.", "two three four five", "six seven.", "Eight."]),
        ("v1.2 is 3.5 of 7.0 now", ["v1.2 is 3.5 of", "7.0 now"]),
    ],
)  # fmt: skip
def test_cuts_at_ends_of_sentences_and_else_at_spaces(text, parts):
    assert texts_of(text, 4) == parts


def test_chinese_and_japanese_are_cut_at_their_own_marks():
    assert texts_of("我们走吧。你好！再见吗？", 6, count_characters) == [
        "我们走吧。",
        "你好！",
        "再见吗？",
    ]
    parts = split_long("我们走吧。你好！", 5, count_characters)
    assert [part.space for part in parts] == ["", ""]


def test_a_word_that_is_too_long_itself_is_cut_between_characters():
    parts = texts_of("abcdefghij", 3, count_characters)
    assert "".join(parts) == "abcdefghij" and max(map(len, parts)) <= 3


@given(st.text(alphabet="ab .!?。\t", max_size=200), st.integers(1, 9))
def test_parts_put_together_are_the_text_and_fit(text, max_tokens):
    parts = split_long(text, max_tokens, count_characters)
    assert "".join(part.text + part.space for part in parts) == text
    assert all(length <= max_tokens for length in count_characters([p.text for p in parts]))
    assert all(not part.space.strip() for part in parts)


def test_parts_fit_as_real_tokenizers_count(tokenizer):
    def count(texts):
        return tokenizer.tokenize(texts).row_lengths().numpy()

    text = "The cat sat on the mat; the dog ran over the green hills. " * 40 + "don't-" * 60
    parts = split_long(text, 25, count)
    assert max(count([part.text for part in parts])) <= 25
    assert "".join(part.text + part.space for part in parts) == text
    # Few parts: neighbours that fit together are together.
    assert len(parts) < 2 * int(count([text])[0]) / 25


def test_a_line_of_a_hundred_thousand_dots_is_cut_at_once():
    assert len(texts_of("." * 100_000, 50_000, count_characters)) == 2
