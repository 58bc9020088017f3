"""Pairs that a Python program has, as rows."""

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kformer.errors import InputError
from training.data.reading.names import UNNAMED, Names, sides
from training.data.reading.texts import is_text, one_line
from training.data.rows import Row


def rows_of(pairs: Iterable[Any], names: Names = UNNAMED) -> Iterator[Row]:
    """Rows of anything that gives pairs, one by one.

    Args:
        pairs: Gives tuples or lists of two strings, or mappings that have the names.
        names: Keys of the mappings, as for JSON lines.

    Returns:
        The rows, numbered from 1.

    Raises:
        InputError: At once if `pairs` gives nothing one by one; while reading at the first item
            that is no pair, with its index (from 0).
    """
    if isinstance(pairs, str | bytes | Mapping) or not isinstance(pairs, Iterable):
        raise InputError(
            f"pairs must be an iterable of (source, target). Received: {_shown(pairs)}"
        )
    return _rows(pairs, names)


def _rows(pairs: Iterable[Any], names: Names) -> Iterator[Row]:
    source_of, target_of = sides(names)
    for index, item in enumerate(pairs):
        if isinstance(item, Mapping):
            pair = source_of(item), target_of(item)
        elif isinstance(item, tuple | list):
            pair = tuple(item)
        else:
            pair = ()
        if len(pair) != 2 or not all(map(is_text, pair)):
            raise InputError(
                f"pairs, index {index}: must be two strings (source, target) or a mapping with "
                f"{names.source or 'source'!r} and {names.target or 'target'!r}. "
                f"Received: {_shown(item)}"
            )
        yield Row(index + 1, one_line(pair[0]), one_line(pair[1]))


def _shown(value: Any) -> str:
    return " ".join(reprlib.repr(value).split())
