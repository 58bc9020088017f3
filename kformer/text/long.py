"""Texts longer than a model reads at once: cut where it hurts least, and joined again."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

# After the mark that ends a sentence, quotes and brackets that close with it, and the space;
# Chinese and Japanese write no space.
_SENTENCE_END = re.compile(r"[.!?…]++[\"'”’»)\]]*+\s++|[。！？]++[”’」』）]*+\s*+")
_SPACE = re.compile(r"\s+")


class Part(NamedTuple):
    """A part of a text, and the space between it and the next."""

    text: str
    space: str


def split_long(
    text: str, max_tokens: int, count_tokens: Callable[[Sequence[str]], Sequence[int]]
) -> list[Part]:
    """Cuts a text into as few parts as fit, in its order, nothing lost.

    It is cut at ends of sentences; a sentence that is too long itself at its spaces; a word that
    is too long itself between characters.

    Args:
        text: of one line.
        max_tokens: most tokens of a part.
        count_tokens: the numbers of tokens of texts.

    Returns:
        Parts whose texts and spaces, put together, are the text.
    """
    (tokens,) = count_tokens([text])
    if tokens <= max_tokens:
        return [_part(text)]
    for border in (_SENTENCE_END, _SPACE):
        pieces = _cut(text, border)
        groups = _packed(pieces, count_tokens(pieces), max_tokens)
        if len(groups) > 1:
            return [
                part for group in groups for part in split_long(group, max_tokens, count_tokens)
            ]
    if len(text) < 2:
        return [_part(text)]
    middle = len(text) // 2
    return [
        part
        for half in (text[:middle], text[middle:])
        for part in split_long(half, max_tokens, count_tokens)
    ]


def _cut(text: str, border: re.Pattern) -> list[str]:
    """The text cut after each border."""
    ends = [match.end() for match in border.finditer(text) if 0 < match.end() < len(text)]
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)])]


def _packed(pieces: Sequence[str], tokens: Sequence[int], max_tokens: int) -> list[str]:
    """Neighbours put together while they fit."""
    groups, room = [], 0
    for piece, count in zip(pieces, tokens, strict=True):
        if groups and count <= room:
            groups[-1] += piece
            room -= count
        else:
            groups.append(piece)
            room = max_tokens - count
    return groups


def _part(text: str) -> Part:
    stripped = text.rstrip()
    return Part(stripped, text[len(stripped) :])
