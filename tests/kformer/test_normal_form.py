"""The plain-Python normal form is that of the graph."""

import itertools
import unicodedata

import pytest
import tensorflow_text as tf_text
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from kformer.normal_form import normal_form, strings
from kformer.text import normalize

CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
KNOWN = st.characters(exclude_categories=["Cn"])

# What TensorFlow Text (Unicode 16) reorders among marks, composes or decomposes, and the tables of
# Python 3.11 (Unicode 14) do not know.
NEWER_MARKS = {
    *range(0x10D69, 0x10D6E), *range(0x10EFD, 0x10F00), *range(0x113CE, 0x113D1),
    *range(0x1E4EC, 0x1E4F0), 0x0897, 0x11F41, 0x11F42, 0x1612F, 0x1E08F, 0x1E5EE, 0x1E5EF,
}  # fmt: skip
NEWER_COMPOSED = {
    *range(0x16121, 0x16129), *range(0x16D68, 0x16D6B), 0x105C9, 0x105E4, 0x11383, 0x11385,
    0x1138E, 0x11391, 0x113C5, 0x113C7, 0x113C8,
}  # fmt: skip


def graph(texts) -> list[str]:
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    return [text.decode() for text in normalize(raw).numpy()]


def differing(texts) -> list[str]:
    """The texts that the two spell differently; compared many at a time, which is quicker."""
    if len(texts) == 1:
        return texts if graph(texts) != [normal_form(texts[0])] else []
    blocks = [texts[start : start + 256] for start in range(0, len(texts), 256)]
    joined = ["|".join(block) for block in blocks]
    return [
        text
        for block, text, expected in zip(blocks, joined, graph(joined), strict=True)
        if normal_form(text) != expected
        for text, expected in zip(block, graph(block), strict=True)
        if normal_form(text) != expected
    ]


def test_every_character_is_as_in_the_graph():
    """By itself, where ends are trimmed, and between letters."""
    assert not differing([f"a{character}b" for character in CHARACTERS])
    odd = [character for character in CHARACTERS if not character.isprintable()]
    alone = [normal_form(character) for character in odd]
    assert alone == graph(odd)


def test_marks_differ_only_where_unicode_is_newer():
    """Each character before the lowest and after the highest of marks: in other places than its
    own if it is a mark, and composed if they make one character."""
    texts = [f"x{character}\u0334" for character in CHARACTERS]
    texts += [f"x\u0345{character}" for character in CHARACTERS]
    found = {ord(text.strip("x\u0345\u0334")) for text in differing(texts)}
    _check_version(found, NEWER_MARKS)


def test_compositions_differ_only_where_unicode_is_newer():
    decomposed = [text.decode() for text in tf_text.normalize_utf8(CHARACTERS, "NFD").numpy()]
    composed = dict(zip(decomposed, CHARACTERS, strict=True))
    texts = [text for text, one in composed.items() if text != one]
    found = {ord(composed[text]) for text in differing(texts)}
    _check_version(found, NEWER_COMPOSED)


def _check_version(found, newer):
    assert found <= newer
    assert all(unicodedata.category(chr(code)) == "Cn" for code in found)
    if unicodedata.unidata_version == "14.0.0":
        assert found == newer


def test_marks_of_every_class_are_ordered_as_in_the_graph():
    by_class = {unicodedata.combining(character): character for character in CHARACTERS}
    marks = [mark for number, mark in by_class.items() if number]
    assert not differing([f"a{''.join(pair)}" for pair in itertools.product(marks, repeat=2)])


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.text(KNOWN),
        st.text(st.sampled_from(" \t\n\x00\x7f\x85\xa0\u2028\u3000a\u0301\u0327가\u11a8が\u3099")),
        st.text(st.sampled_from("\ud800\udfff\ud83d\ude00 e\u0301\x01")),
    )
)
def test_any_text_is_as_in_the_graph(text):
    assert [normal_form(text)] == graph([text])
    assert normal_form(normal_form(text)) == normal_form(text)


@settings(deadline=None, max_examples=200)
@given(st.binary())
def test_bytes_are_read_as_the_graph_reads_them(raw):
    (text,) = strings([raw])
    if not any(unicodedata.category(character) == "Cn" for character in text):
        assert normal_form(text) == normalize([raw]).numpy()[0].decode()


def test_text_in_normal_form_is_given_back_itself():
    for text in ("plain text", "Größe, naïve café", "我爱你"):
        assert normal_form(text) is text


@pytest.mark.parametrize("texts", ["one string", b"bytes", ["a", 3], [None]])
def test_refuses_what_is_not_many_strings(texts):
    with pytest.raises(InputError, match="Received"):
        list(strings(texts))
