"""Signs of life of work that takes long."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

OUTPUT = "output"
_PAUSE = 10.0
"""Seconds between them."""


Item = TypeVar("Item")


def shown(
    items: Iterable[Item], doing: str, count: Callable[[Item], int] = lambda item: 1
) -> Iterator[Item]:
    """The items, with a line now and then of how many pairs have gone by.

    Args:
        items: read once.
        doing: begins the line.
        count: the pairs of an item.
    """
    began = told = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += count(item)
        now = time.monotonic()
        if now - told > _PAUSE:
            told = now
            say(f"  {doing}: {done:,} pairs, {done / (now - began):,.0f} a second")


def say(line: str) -> None:
    """Prints a line; an error of the output says so, whatever is being written meanwhile."""
    try:
        print(line, flush=True)
    except OSError as error:
        error.filename = OUTPUT
        raise
