"""Which word of a translation comes from which word of its source, by attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from kformer.errors import InputError

NO_WORD = -1
"""The word of the end token."""

NO_ATTENTION = "the model has no attention"
"""What is said to whoever asks for it."""


@dataclass(frozen=True)
class AttentionFrom:
    """Which attention alignments are read from: that of the decoder to the source.

    Args:
        layer: of the decoder, from 0, or back from -1, the last.
        heads: which to average over, from 0. None: all.
    """

    layer: int = -1
    heads: tuple[int, ...] | None = None

    def check(self, layers: int, heads: int) -> None:
        """Refuses what a model of so many layers and heads does not have.

        Raises:
            InputError: naming it.
        """
        if not layers:
            if self != AttentionFrom():
                raise InputError(f"alignments from a layer or heads: {NO_ATTENTION}")
            return
        if not -layers <= self.layer < layers:
            raise InputError(
                f"the model has {layers} decoder layers, counted from 0 or back from -1. "
                f"Received: layer {self.layer}"
            )
        for head in self.heads or ():
            if not 0 <= head < heads:
                raise InputError(f"the model has {heads} heads, from 0. Received: head {head}")


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
