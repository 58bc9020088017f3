"""What names the two sides, in the formats that name them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Names(NamedTuple):
    """What names the two sides, in the formats that name them; None where the format decides.

    Args:
        source: a JSON key or a Hugging Face column, where a dot goes down into an object
            (`translation.en`; `source` if None), or a language of TMX (`en` also takes `en-US`).
        target: the same for the other side.
    """

    source: str | None = None
    target: str | None = None


UNNAMED = Names()


def sides(names: Names) -> tuple[Callable[[Mapping], Any], Callable[[Mapping], Any]]:
    """Two functions that take the source and the target out of an object; None if not there."""
    return _getter(names.source or "source"), _getter(names.target or "target")


def _getter(name: str) -> Callable[[Mapping], Any]:
    path = name.split(".")

    def get(item: Mapping) -> Any:
        if name in item:
            return item[name]
        value: Any = item
        for key in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    return get
