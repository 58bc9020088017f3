import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from kformer.text import normalize
from kformer.text.normalize import normalized_batches

# Code points assigned in every Unicode version around, so that Python and ICU agree on them.
KNOWN_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cn", "Co"]))


def one(text) -> str:
    return normalize(tf.constant([text])).numpy()[0].decode()


def reference(text: str) -> str:
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if category.startswith("Z") or char in "\t\n\v\f\r\x85":
            kept.append(" ")
        elif category != "Cc":
            kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).strip(" ")


@settings(deadline=None, max_examples=200)
@given(KNOWN_TEXT)
def test_agrees_with_unicodedata(text):
    assert one(text) == reference(text)


@pytest.mark.parametrize("space", "\u00a0\t\n\r\v\f\u0085\u2028\u2029\u3000\u2009\u202f")
def test_every_white_space_becomes_one_space(space):
    assert one(f"a{space}b{space}{space}c{space}") == "a b  c"


@pytest.mark.parametrize("control", ["\x00", "\x01", "\x1b", "\x7f", "\x9f"])
def test_controls_vanish(control):
    assert one(f"a{control}b") == "ab"


def test_a_control_between_letter_and_accent_does_not_block_composition():
    assert one("e\x00\u0301") == "é"


@pytest.mark.parametrize("kept", ["👩\u200d👧", "می\u200cخواهم", "co\u00adop", "ก\u200bข"])
def test_format_characters_stay(kept):
    assert one(kept) == kept


@pytest.mark.parametrize("raw", [b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_invalid_bytes_become_the_replacement_character(raw):
    result = one(raw)
    assert "\ufffd" in result
    assert one(result) == result


@pytest.mark.parametrize("shape", [[], [0], [2], [2, 3], [0, 3]])
def test_keeps_any_shape(shape):
    assert normalize(tf.fill(shape, " a ")).shape == shape


@settings(deadline=None, max_examples=100)
@given(st.binary())
def test_twice_is_once(raw):
    once = normalize([raw])
    assert normalize(once).numpy()[0] == once.numpy()[0]


def test_batches_hold_every_text_once_and_in_order():
    texts = [f" {n}" for n in range(10)]
    batches = [batch.numpy().tolist() for batch in normalized_batches(iter(texts), size=4)]
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert [int(text) for batch in batches for text in batch] == list(range(10))


@pytest.mark.parametrize("texts", ["one string", b"bytes", ["a", 3], [None]])
def test_refuses_what_is_not_many_strings(texts):
    with pytest.raises(InputError, match="Received"):
        list(normalized_batches(texts))


def test_lone_surrogates_do_not_crash():
    (batch,) = normalized_batches(["a\ud800"])
    assert "\ufffd" in batch.numpy()[0].decode()
