"""Which word of a translation comes from which word of its source, by attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

NO_WORD = -1
"""The word of the end token."""


@dataclass(frozen=True)
class Alignment:
    """Attention between the tokens of a text and those of its translation.

    Args:
        source_tokens: pieces of the source, and the end token.
        target_tokens: pieces of the translation, and the end token if it has one.
        source_words, target_words: for each token the index of its word, or `NO_WORD`.
        weights: float32 (target tokens, source tokens), how much the prediction of each target
            token attended to each source token; rows sum to 1 (of a language
            model to less: the rest is attention to the target so far).
    """

    source_tokens: list[str]
    target_tokens: list[str]
    source_words: list[int]
    target_words: list[int]
    weights: np.ndarray

    @property
    def links(self) -> list[tuple[int, int]]:
        """Pairs of a source word and a target word: each target word, and the one it attends to
        most."""
        target, source = _membership(self.target_words), _membership(self.source_words)
        if not len(target) or not len(source):
            return []
        best = (target @ self.weights @ source.T).argmax(axis=1)
        return [(int(source), target) for target, source in enumerate(best)]

    def __str__(self) -> str:
        """The links as `0-0 1-2`, source first: the format that alignment tools exchange."""
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links))

    def followed_by(self, other: Self, apart: bool) -> Self:
        """That of a text of two parts, which were translated by themselves.

        Args:
            other: of the second part.
            apart: whether there is space between them; without, a word goes on in the second.
        """
        rows, columns = self.weights.shape
        weights = np.zeros(np.add(self.weights.shape, other.weights.shape), np.float32)
        weights[:rows, :columns] = self.weights
        weights[rows:, columns:] = other.weights
        return Alignment(
            self.source_tokens + other.source_tokens,
            self.target_tokens + other.target_tokens,
            _continued(self.source_words, other.source_words, apart),
            _continued(self.target_words, other.target_words, apart),
            weights,
        )


@dataclass(frozen=True)
class AttentionMaps:
    """As `Alignment` has it, but of every layer and head by itself.

    Args:
        source_tokens: pieces of the source, and the end token.
        target_tokens: pieces of the translation, and the end token.
        weights: float32 (layers, heads, target tokens, source tokens); rows sum to 1.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray


def _membership(words: Sequence[int]) -> np.ndarray:
    """float32 (words, tokens), 1 where a token belongs to a word."""
    count = max(words, default=NO_WORD) + 1
    return (np.arange(count)[:, np.newaxis] == np.asarray(words, int)).astype(np.float32)


def _continued(words: list[int], others: list[int], apart: bool) -> list[int]:
    last = max(words, default=NO_WORD)
    offset = last + 1 if apart or last == NO_WORD else last
    return words + [word if word == NO_WORD else word + offset for word in others]
