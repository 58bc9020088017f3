"""What corpora are made of: rows as they are read, pairs once they are whole."""

from typing import NamedTuple


class Pair(NamedTuple):
    """One sentence (or any text of one line) and its translation."""

    source: str
    target: str


class Row(NamedTuple):
    """What one place of a file holds.

    Args:
        line: its number in the file, from 1: a line, or an entry where a format has no lines.
        source: the source text, or what was found where there are not two texts.
        target: the target text; None where the row is malformed.
    """

    line: int
    source: str
    target: str | None
