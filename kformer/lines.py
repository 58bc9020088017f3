"""Text that command lines read, line by line."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kformer.errors import InputError


def open_text(file: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    """A file, or standard input where `file` is None, to be read as bytes in a `with` statement.

    Standard input is not closed: whoever waits for a line of it holds it.

    Raises:
        InputError: it cannot be opened.
    """
    if file is None:
        if sys.stdin is None:
            raise InputError("standard input is closed; name a FILE")
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of UTF-8 text, without their ends. They end at LF and nowhere else.

    Args:
        stream: bytes.
        name: what an error calls the text.

    Raises:
        InputError: a line is not UTF-8.
    """
    for number, line in enumerate(stream, start=1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8. Convert it first.") from error
