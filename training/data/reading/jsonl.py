"""JSON lines: one object a line, with the two sides under keys."""

import json
from collections.abc import Iterator
from pathlib import Path

from training.data.reading.lines import text_lines
from training.data.reading.names import Names, sides
from training.data.reading.texts import is_text, malformed, one_line
from training.data.rows import Row


def jsonl_rows(path: Path, names: Names) -> Iterator[Row]:
    """Rows of one JSON object a line.

    A line that is no object, lacks a key or has something else than a string there is malformed.

    Args:
        path: The file.
        names: The keys; a dot goes down into an object, unless the key itself has it.

    Raises:
        InputError: As `text_lines`.
    """
    source_of, target_of = sides(names)
    for number, line in enumerate(text_lines(path), 1):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):  # no JSON; an endless number; nested without end
            item = None
        if isinstance(item, dict):
            source, target = source_of(item), target_of(item)
            if is_text(source) and is_text(target):
                yield Row(number, one_line(source), one_line(target))
                continue
        yield malformed(number, line)
