"""Texts of any number and length to translations: strings in, strings out."""

import dataclasses
import functools
import math
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import tensorflow as tf

from kformer.alignment import NO_WORD, Alignment
from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.ids import END_ID
from kformer.run_folder import RunFolder
from kformer.search import NONE
from kformer.text import RESERVED_PIECES, Part, split_long

_END = RESERVED_PIECES[END_ID]


class TextTooLongError(InputError):
    """A text has more tokens than there is room for.

    Args:
        name: what the texts are called.
        index: which of them it is, from 0.
        reason: how many tokens it has, and how many there may be.
    """

    def __init__(self, name: str, index: int, reason: str):
        super().__init__(f"{name} {index + 1}: {reason}")
        self.index, self.reason = index, reason


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


_BLANK = Hypothesis("", [], [], 0.0, 0.0, True)


class Translator:
    """Translates lists of texts, in batches of like length.

    A text may have several lines: each is translated for itself. A line with more tokens than the
    graph reads is cut at ends of sentences, else at spaces, and its parts are joined again.

    Args:
        graph: what translates batches of sentences.
        max_batch_tokens: most source tokens, padding included, times hypotheses, in work at once.
        max_batch_sentences: most sentences in work at once. None: no limit.
    """

    def __init__(
        self,
        graph: TranslationGraph,
        *,
        max_batch_tokens: int = 4096,
        max_batch_sentences: int | None = None,
    ):
        for name, value in (
            ("max_batch_tokens", max_batch_tokens),
            ("max_batch_sentences", max_batch_sentences),
        ):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1. Received: {value}")
        self.graph = graph
        self.max_batch_tokens = max_batch_tokens
        self.max_batch_sentences = max_batch_sentences

    @classmethod
    def from_run(
        cls,
        path: str | os.PathLike,
        search=None,
        *,
        max_batch_tokens: int = 4096,
        max_batch_sentences: int | None = None,
        **options,
    ) -> "Translator":
        """The translator of a run folder's best model.

        Args:
            path: of the run folder.
            search, **options: of `TranslationGraph`.
            max_batch_tokens, max_batch_sentences: of the constructor.

        Raises:
            InputError: the folder is not a complete run folder, or an option is out of range.
        """
        return cls(
            TranslationGraph(*RunFolder.open(path).load(), search, **options),
            max_batch_tokens=max_batch_tokens,
            max_batch_sentences=max_batch_sentences,
        )

    def translate(self, texts: Sequence[str], prefixes: Sequence[str] | None = None) -> list[str]:
        """Translates texts of any number and lengths; their order is kept.

        A text that is empty, or empty once normalised, translates to an empty string.

        Args:
            texts: one or more sentences each; line ends inside stay where they are.
            prefixes: what each translation begins with, "" for nothing.

        Returns:
            The best translation of each.

        Raises:
            InputError: an argument is of the wrong kind, or a prefix does not fit.
        """
        return [translation.text for translation in self.translate_nbest(texts, prefixes)]

    def translate_nbest(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        *,
        with_alignments: bool = False,
    ) -> list[Translation]:
        """As `translate`, with all hypotheses of the search and their scores.

        Args:
            texts, prefixes: see `translate`.
            with_alignments: whether hypotheses get theirs, as `align` makes them.
        """
        texts = _strings("texts", texts)
        prefixes = [""] * len(texts) if prefixes is None else _strings("prefixes", prefixes)
        if len(prefixes) != len(texts):
            raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        self._check_prefixes(prefixes)
        parts = self._split(texts)
        bounds = np.cumsum([0, *map(len, parts)])
        flat = [part for of_text in parts for part in of_text]
        # A prefix begins the first part of its text.
        begins = [""] * len(flat)
        for first, prefix in zip(bounds, prefixes, strict=False):
            begins[first] = prefix
        sources = [part.text for part in flat]
        found = self._search(sources, begins)
        if with_alignments:
            found = self._aligned(sources, found)
        return [
            _joined([part.space for part in flat[first:last]], found[first:last])
            for first, last in pairwise(bounds)
        ]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[TargetScore]:
        """How likely the model holds given translations.

        Args:
            sources: a sentence each.
            targets: its translation; "" is the end token alone.

        Raises:
            InputError: the numbers differ, or a side has more tokens than learned positions.
        """
        results = [None] * self._check_pairs(sources, targets)
        for rows, output in self._pairs(self.graph.score, sources, targets):
            for row, *fields in zip(rows, *output.values(), strict=True):
                total, tokens, log_probabilities = fields
                tokens = _texts(tokens)
                results[row] = TargetScore(
                    tokens,
                    log_probabilities[: len(tokens)].tolist(),
                    float(total),
                    _exp(-float(total) / len(tokens)),
                )
        return results

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
        """Which words of translations come from which of their sources, by attention.

        Args:
            sources: a sentence each.
            targets: its translation.

        Raises:
            InputError: the numbers differ, or a side has more tokens than learned positions.
        """
        results = [None] * self._check_pairs(sources, targets)
        of_source, of_target = self.graph.word_indices
        for rows, output in self._pairs(self.graph.attention, sources, targets):
            for row, *fields in zip(rows, *output.values(), strict=True):
                source, target, weights = _texts(fields[0]), _texts(fields[1]), fields[2]
                results[row] = Alignment(
                    source,
                    target,
                    _words(source, of_source),
                    _words(target, of_target),
                    weights[: len(target), : len(source)],
                )
        return results

    def _split(self, texts: Sequence[str]) -> list[list[Part]]:
        """The parts that each text is translated in: its lines, long ones in several."""
        lines = [text.split("\n") for text in texts]
        flat = [line for of_text in lines for line in of_text]
        limit = self.graph.max_source_tokens
        fitting = iter(self._count(flat) <= limit)

        def parts(of_text):
            for number, line in enumerate(of_text, start=1):
                end = "\n" if number < len(of_text) else ""
                of_line = (
                    [Part(line, "")] if next(fitting) else split_long(line, limit, self._count)
                )
                yield from of_line[:-1]
                yield of_line[-1]._replace(space=end)

        return [list(parts(of_text)) for of_text in lines]

    def _search(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[list[Hypothesis]]:
        """The hypotheses of each text of one sentence."""
        found = [[_BLANK] for _ in texts]
        for rows in self._batches(self._count(texts), self.graph.search.width):
            output = self.graph.complete(
                _strings_tensor(texts, rows), _strings_tensor(prefixes, rows)
            )
            arrays = {name: tensor.numpy() for name, tensor in output.items()}
            for number, row in enumerate(rows):
                found[row] = list(_hypotheses({name: of[number] for name, of in arrays.items()}))
        return found

    def _aligned(
        self, sources: Sequence[str], found: Sequence[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """The same hypotheses with alignments, but for those of blank texts."""
        pairs = [
            (source, hypothesis.text)
            for source, hypotheses in zip(sources, found, strict=True)
            for hypothesis in hypotheses
            if hypothesis is not _BLANK
        ]
        alignments = iter(self.align(*zip(*pairs, strict=True)) if pairs else [])
        return [
            [
                hypothesis
                if hypothesis is _BLANK
                else dataclasses.replace(hypothesis, alignment=next(alignments))
                for hypothesis in hypotheses
            ]
            for hypotheses in found
        ]

    def _pairs(self, score: Callable, sources, targets) -> Iterator:
        """Row numbers of a batch of pairs, and what the graph's function gives for them."""
        lengths = np.maximum(self._count(sources), self._count_target(targets)) + 1
        for rows in self._batches(lengths, width=1):
            output = score(_strings_tensor(sources, rows), _strings_tensor(targets, rows))
            yield rows, {name: tensor.numpy() for name, tensor in output.items()}

    def _check_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> int:
        """The number of pairs, if each fits the model."""
        sources, targets = _strings("sources", sources), _strings("targets", targets)
        if len(sources) != len(targets):
            raise InputError(f"{len(sources)} sources for {len(targets)} targets")
        limit = self.graph.max_scored_tokens
        lengths = np.maximum(self._count(sources), self._count_target(targets))
        for index in np.flatnonzero(lengths > limit)[:1]:
            raise TextTooLongError(
                "pair",
                int(index),
                f"{lengths[index]} tokens on a side, but the model reads {limit}. Split it.",
            )
        return len(sources)

    def _check_prefixes(self, prefixes: Sequence[str]) -> None:
        limit = self.graph.max_target_tokens
        lengths = self._count_target(prefixes)
        for index in np.flatnonzero(lengths > limit)[:1]:
            raise TextTooLongError(
                "prefix",
                int(index),
                f"{lengths[index]} tokens, but a translation has at most {limit}.",
            )

    def _count(self, texts: Sequence[str]) -> np.ndarray:
        return self.graph.count_tokens(_strings_tensor(texts))["tokens"].numpy()

    def _count_target(self, texts: Sequence[str]) -> np.ndarray:
        return self.graph.count_target_tokens(_strings_tensor(texts))["tokens"].numpy()

    def _batches(self, lengths: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Row numbers in batches of like length, so that little is padded; no empty rows."""
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        most = self.max_batch_sentences or math.inf
        start = 0
        for end in range(1, len(order) + 1):
            longest = lengths[order[min(end, len(order) - 1)]] + 1
            full = (end + 1 - start) * longest * width > self.max_batch_tokens
            if end == len(order) or end - start == most or full:
                yield order[start:end]
                start = end


def _hypotheses(output: dict[str, np.ndarray]) -> Iterator[Hypothesis]:
    """Those of one sentence, each once."""
    seen = set()
    for index, score in enumerate(output["score"]):
        tokens = _texts(output["tokens"][index])
        if score <= NONE / 10 or tuple(tokens) in seen:
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


def _joined(spaces: Sequence[str], parts: Sequence[list[Hypothesis]]) -> Translation:
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
        alignments = [hypothesis.alignment for hypothesis in chosen if hypothesis.alignment]
        whole.append(
            Hypothesis(
                text,
                [token for hypothesis in chosen for token in hypothesis.tokens],
                [value for hypothesis in chosen for value in hypothesis.token_log_probabilities],
                math.fsum(hypothesis.log_probability for hypothesis in chosen),
                math.fsum(hypothesis.score for hypothesis in chosen),
                all(hypothesis.ended for hypothesis in chosen),
                functools.reduce(operator.add, alignments) if alignments else None,
            )
        )
    return Translation(whole, len(parts))


def _strings(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} must be a list of strings. Received: {texts!r}")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"{name} must be strings. Received: {text!r} as number {number}")
    return texts


def _strings_tensor(texts: Sequence[str], rows: Sequence[int] | None = None) -> tf.Tensor:
    chosen = texts if rows is None else [texts[row] for row in rows]
    # A lone surrogate has no UTF-8: passed on as bytes, it becomes U+FFFD.
    return tf.constant([text.encode("utf-8", "surrogatepass") for text in chosen], tf.string)


def _texts(tokens: np.ndarray) -> list[str]:
    """Pieces as strings, up to the padding."""
    return [token.decode() for token in tokens if token]


def _words(tokens: Sequence[str], word_indices: Callable) -> list[int]:
    """The word of each piece; the end token, which comes last, has none."""
    return [*word_indices(tokens[:-1]), NO_WORD] if tokens[-1:] == [_END] else word_indices(tokens)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
