"""What a translator gives back."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kformer.alignment import Alignment
from kformer.search import REAL


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a text, and how sure the model is of it.

    Args:
        text: the translation.
        tokens: its pieces, "</s>" where it ended.
        token_log_probabilities: of each of them.
        log_probability: their sum.
        score: what hypotheses are sorted by: for beam search the sum over its length penalty.
        ended: whether it came to an end; False: the limit of length cut it short.
        alignment: of its text with the source, if asked for; a blank text has none.
    """

    text: str
    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    score: float
    ended: bool
    alignment: Alignment | None = None


@dataclass(frozen=True)
class Translation:
    """What was found for a text.

    Args:
        hypotheses: best first, no two the same; one, empty, for a blank text. They may be fewer
            than asked for.
        parts: how many parts the text was cut in: its lines, and parts of lines too long for the
            model to read at once. More than 1: scores are sums over the parts.
    """

    hypotheses: list[Hypothesis]
    parts: int

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


@dataclass(frozen=True)
class TargetScore:
    """How likely a model holds a given translation.

    Args:
        tokens: its pieces, and "</s>".
        token_log_probabilities: of each, given the source and those before it.
        log_probability: their sum.
        perplexity: exp(-log_probability / number of tokens).
    """

    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    perplexity: float


BLANK = Hypothesis("", [], [], 0.0, 0.0, True)
"""The one translation of a blank text."""

NOTHING = Hypothesis("", [], [], 0.0, 0.0, False)
"""Where the limits leave room for no translation."""


def hypotheses_of(output: dict[str, np.ndarray]) -> Iterator[Hypothesis]:
    """Those of one sentence, as `TranslationGraph.complete` gives them, each once."""
    seen = set()
    for index, score in enumerate(output["score"]):
        tokens = pieces_of(output["tokens"][index])
        if score <= REAL or tuple(tokens) in seen:
            continue
        seen.add(tuple(tokens))
        yield Hypothesis(
            output["translation"][index].decode(),
            tokens,
            output["token_log_probabilities"][index][: len(tokens)].tolist(),
            float(output["log_probability"][index]),
            float(score),
            not output["truncated"][index],
        )


def pieces_of(tokens: np.ndarray) -> list[str]:
    """Pieces as strings, up to the padding."""
    return [token.decode() for token in tokens if token]


def join_parts(spaces: Sequence[str], parts: Sequence[list[Hypothesis]]) -> Translation:
    """The translation of a text from those of its parts; the n-th is made of each part's n-th."""
    if len(parts) == 1:
        return Translation(parts[0], 1)
    whole = []
    for index in range(max(map(len, parts))):
        chosen = [of_part[min(index, len(of_part) - 1)] for of_part in parts]
        text = "".join(
            hypothesis.text + ("\n" if "\n" in space else " " if space else "")
            for hypothesis, space in zip(chosen, spaces, strict=True)
        )
        alignment, apart = None, True
        for hypothesis, space in zip(chosen, spaces, strict=True):
            if hypothesis.alignment:
                alignment = (
                    alignment.followed_by(hypothesis.alignment, apart)
                    if alignment
                    else hypothesis.alignment
                )
            apart = bool(space)
        whole.append(
            Hypothesis(
                text,
                [token for hypothesis in chosen for token in hypothesis.tokens],
                [value for hypothesis in chosen for value in hypothesis.token_log_probabilities],
                math.fsum(hypothesis.log_probability for hypothesis in chosen),
                math.fsum(hypothesis.score for hypothesis in chosen),
                all(hypothesis.ended for hypothesis in chosen),
                alignment,
            )
        )
    return Translation(whole, len(parts))
