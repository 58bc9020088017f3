import collections

import pytest

from kformer.errors import InputError
from training.data.reading.names import Names
from training.data.reading.pairs import rows_of
from training.data.rows import Pair


def error(pairs, *names) -> str:
    with pytest.raises(InputError) as raised:
        list(rows_of(pairs, Names(*names)))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_pairs_of_any_kind_become_rows():
    mapping = collections.OrderedDict(source="g", target="h")
    pairs = [("a", "b"), ["c", "d\ne"], Pair("e", "f"), mapping]
    expected = [(1, "a", "b"), (2, "c", "d e"), (3, "e", "f"), (4, "g", "h")]
    assert list(rows_of(pairs)) == list(rows_of(iter(pairs))) == expected


def test_mappings_have_the_names():
    items = [{"t": {"en": "a", "de": "b"}}]
    assert list(rows_of(items, Names("t.en", "t.de"))) == [(1, "a", "b")]
    message = error(items, "t.en", "t.fr")
    assert "index 0" in message and "'t.fr'" in message and "Received: {'t':" in message


@pytest.mark.parametrize(
    "item",
    ["ab", b"ab", None, 3, ("a",), ("a", "b", "c"), ("a", None), (b"a", b"b"), {"a", "b"}, {},
     {"source": "a"}, ("a", "\ud83d"), type("T", (), {"__repr__": lambda self: "two\nlines"})()],
)  # fmt: skip
def test_what_is_no_pair_is_named_with_its_index(item):
    message = error([("a", "b"), item, ("c", "d")])
    assert "pairs, index 1: must be two strings" in message and "Received: " in message
    assert len(message) < 300


@pytest.mark.parametrize("pairs", ["c.tsv", b"ab", {"a": "b"}, None, 3])
def test_what_gives_no_pairs_is_refused_at_once(pairs):
    with pytest.raises(InputError, match="pairs must be an iterable"):
        rows_of(pairs)


def test_pairs_are_taken_one_by_one():
    def endless():
        while True:
            yield "a", "b"

    assert next(rows_of(endless())) == (1, "a", "b")
