"""What is a text, and what a row shows that has none."""

from typing import Any

from training.data.rows import Row

SHOWN = 200  # characters


def is_text(value: Any) -> bool:
    """Whether a value is a string that can be written as UTF-8: JSON can escape half a pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str) -> str:
    """Formats that are not made of lines may hold line ends in a text; they become spaces."""
    return text.replace("\r\n", " ").replace("\n", " ") if "\n" in text else text


def malformed(line: int, found: str) -> Row:
    """The row of a place that does not hold two texts."""
    return Row(line, one_line(found[:SHOWN]), None)
