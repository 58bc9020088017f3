"""Wildcards in the names of files."""

import fnmatch
import glob
import os
import re

from kformer.errors import InputError

_WILDCARD = re.compile(r"\*|\?|\[!?\]?[^]]*\]")


def expand(name: str) -> list[str]:
    """The names a pattern (`*`, `?`, `[...]`) stands for, sorted; a file's own name comes first.

    Args:
        name: A file's name or a pattern.

    Returns:
        The name itself if there is such a file, else what matches it; nothing if nothing does.
    """
    if os.path.lexists(name):
        return [name]
    try:
        return sorted(glob.glob(name))
    except ValueError:  # a name that no file can have
        return []


def expand_pair(source: str, target: str) -> list[tuple[str, str]]:
    """Pairs of names: what the wildcards of the source stand for is filled into the target.

    `data/*.en` and `data/*.de` are `data/a.en` and `data/a.de`, and so on.

    Raises:
        InputError: Nothing matches the source, or the two have not the same number of wildcards.
    """
    wildcards = _WILDCARD.findall(source)
    if os.path.lexists(source) or not wildcards:
        return [(source, target)]
    if len(wildcards) != len(_WILDCARD.findall(target)):
        raise InputError(f"{source},{target}: both names need the same wildcards, in their order")
    names = expand(source)
    if not names:
        raise InputError(f"{source}: no file matches")
    literals = _WILDCARD.split(source)
    groups = [f"({fnmatch.translate(wildcard)[:-2]})" for wildcard in wildcards] + [""]
    pattern = "".join(re.escape(text) + group for text, group in zip(literals, groups, strict=True))
    pairs = []
    for name in names:
        fillings = iter(re.fullmatch(pattern, name).groups())
        pairs.append((name, _WILDCARD.sub(lambda _, fill=fillings: next(fill), target)))
    return pairs
