"""Text that command lines read, line by line."""

import contextlib
import queue
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from kformer.errors import InputError

T = TypeVar("T")


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


def in_lists(items: Iterator[T], most: int) -> Iterator[list[T]]:
    """Lists of so many items; the last may be shorter."""
    while chunk := list(islice(items, most)):
        yield chunk


def as_they_come(items: Iterator[T], most: int) -> Iterator[list[T]]:
    """Lists of whatever has arrived, so that nobody who sends one line waits for others to send
    more.

    Args:
        items: read in a thread of its own; an error that ends them is raised here.
        most: items of a list.
    """
    waiting = queue.Queue(2 * most)

    def read():
        error = None
        try:
            for item in items:
                waiting.put(item)
        except BaseException as raised:
            error = raised
        waiting.put(_End(error))

    threading.Thread(target=read, daemon=True).start()
    end = None
    while end is None:
        chunk = []
        while len(chunk) < most and not (chunk and waiting.empty()):
            item = waiting.get()
            if isinstance(item, _End):
                end = item
                break
            chunk.append(item)
        if chunk:
            yield chunk
    if end.error is not None:
        raise end.error


@dataclass(frozen=True)
class _End:
    error: BaseException | None
