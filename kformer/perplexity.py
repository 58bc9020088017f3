"""How well a language model of lines of one language expects a text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kformer.errors import InputError
from kformer.generation import Generator


@dataclass(frozen=True)
class LineScores:
    """The perplexity of a text: exp(loss), the loss being the mean negative log-likelihood of its
    tokens, the end of each line included.

    Perplexities of models with other vocabularies cannot be compared; those of a character can.

    Args:
        perplexity: of a token.
        character_perplexity: the same likelihood shared out to characters, one more a line.
        loss: of a token, in nats.
        tokens: their number.
        lines: how many lines were scored.
        too_long: how many were not, for their length.
    """

    perplexity: float
    character_perplexity: float
    loss: float
    tokens: int
    lines: int
    too_long: int

    def __str__(self) -> str:
        left_out = f"; {self.too_long:,} lines too long to be scored" if self.too_long else ""
        return (
            f"perplexity {self.perplexity:.2f} of a token, {self.character_perplexity:.3f} of a "
            f"character  ({self.tokens:,} tokens in {self.lines:,} lines{left_out})"
        )


def perplexity(generator: Generator, lines: Sequence[str]) -> LineScores:
    """The perplexity of lines in normal form.

    Raises:
        InputError: none of them is short enough.
    """
    lengths = generator.count_tokens(lines)
    fits = generator.graph.limits.can_score(np.zeros_like(lengths), lengths)
    scored = [line for line, fit in zip(lines, fits, strict=True) if fit]
    if not scored:
        raise InputError(f"no line to score: of {len(lines):,} none is short enough for the model")
    scores = generator.score(scored)
    total = -math.fsum(score.log_probability for score in scores)
    tokens = sum(len(score.tokens) for score in scores)
    characters = sum(len(line) + 1 for line in scored)
    loss = total / max(tokens, 1)
    return LineScores(
        float(np.exp(loss)),
        float(np.exp(total / max(characters, 1))),
        loss,
        tokens,
        len(scored),
        len(lines) - len(scored),
    )
