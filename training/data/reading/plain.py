"""Formats of plain lines: source TAB target in one file, two files that run in parallel, or a
text of one language."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from kformer.errors import InputError
from training.data.reading.lines import text_lines
from training.data.reading.names import Names
from training.data.reading.texts import malformed
from training.data.rows import Row


def tsv_rows(path: Path, names: Names) -> Iterator[Row]:
    """Rows of source TAB target; further columns are ignored, quotes are ordinary characters.

    Raises:
        InputError: As `text_lines`.
    """
    for number, line in enumerate(text_lines(path), 1):
        columns = line.split("\t", 2)
        if len(columns) > 1:
            yield Row(number, columns[0], columns[1])
        else:
            yield malformed(number, line)


def line_rows(path: Path, names: Names) -> Iterator[Row]:
    """Rows of lines of one language: targets without a source.

    Raises:
        InputError: As `text_lines`.
    """
    for number, line in enumerate(text_lines(path), 1):
        yield Row(number, "", line)


def parallel_rows(source: Path, target: Path) -> Iterator[Row]:
    """Rows of two files, of which line n of one translates line n of the other.

    Raises:
        InputError: As `text_lines`; at the end, if one file has more lines than the other.
    """
    sources, targets = text_lines(source), text_lines(target)
    for number, (one, other) in enumerate(zip_longest(sources, targets), 1):
        if one is None or other is None:
            # One line of the longer file is already read; the rest is counted for the message.
            longer = number + sum(1 for _ in (targets if one is None else sources))
            counts = (number - 1, longer) if one is None else (longer, number - 1)
            raise InputError(
                f"parallel files differ in length: {source} has {counts[0]} lines, "
                f"{target} has {counts[1]} lines; line n of one must translate line n of the other"
            )
        yield Row(number, one, other)
