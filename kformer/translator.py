"""Texts of any number and length to translations: strings in, strings out."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from kformer.alignment import NO_ATTENTION, NO_WORD, Alignment, AttentionMaps
from kformer.batching import (
    batches_of_like_length,
    checked_strings,
    row_by_row,
    strings_tensor,
)
from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.ids import END_ID
from kformer.run_folder import RunFolder
from kformer.saved_graph import SavedGraph
from kformer.text import RESERVED_PIECES, Part, split_long
from kformer.translation import (
    BLANK,
    NOTHING,
    Hypothesis,
    TargetScore,
    Translation,
    hypotheses_of,
    join_parts,
    pieces_of,
)

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
        graph: TranslationGraph | SavedGraph,
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
        run = RunFolder.open(path)
        run.refuse_lines()
        return cls(
            TranslationGraph(*run.load(), search, **options),
            max_batch_tokens=max_batch_tokens,
            max_batch_sentences=max_batch_sentences,
        )

    @classmethod
    def from_saved_model(
        cls,
        path: str | os.PathLike,
        *,
        max_batch_tokens: int = 4096,
        max_batch_sentences: int | None = None,
    ) -> "Translator":
        """The translator of an exported version; its search was fixed when it was exported.

        Args:
            path: of the version's folder.
            max_batch_tokens, max_batch_sentences: of the constructor.

        Raises:
            InputError: the folder is no export of kformer, or is damaged.
        """
        return cls(
            SavedGraph(path),
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
        if with_alignments:
            self._check_attention()
        texts = checked_strings("texts", texts)
        prefixes = [""] * len(texts) if prefixes is None else checked_strings("prefixes", prefixes)
        if len(prefixes) != len(texts):
            raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        if any(prefixes):
            self._check_prefixes(prefixes)
        parts = self._split(texts)
        bounds = np.cumsum([0, *map(len, parts)])
        flat = [part for of_text in parts for part in of_text]
        # A prefix begins the first part of its text that is not blank.
        begins = [""] * len(flat)
        for first, of_text, prefix in zip(bounds, parts, prefixes, strict=False):
            there = [number for number, part in enumerate(of_text) if part.text.strip()]
            if there:
                begins[first + there[0]] = prefix
        sources = [part.text for part in flat]
        found = self._search(sources, begins)
        if with_alignments:
            found = self._aligned(sources, found)
        return [
            join_parts([part.space for part in flat[first:last]], found[first:last])
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
        return self._of_pairs(self.graph.score, sources, targets, _score)

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
        """Which words of translations come from which of their sources, by attention.

        Args:
            sources: a sentence each.
            targets: its translation.

        Raises:
            InputError: the numbers differ, a side has more tokens than learned positions, or the
                model has no attention.
        """
        self._check_attention()
        of_source, of_target = self.graph.word_indices
        return [
            Alignment(source, target, _words(source, of_source), _words(target, of_target), weights)
            for source, target, weights in self._of_pairs(
                self.graph.attention, sources, targets, _attention
            )
        ]

    def attention_maps(self, sources: Sequence[str], targets: Sequence[str]) -> list[AttentionMaps]:
        """What each layer and head of the decoder attends to; `kformer.plots.attention` draws it.

        Args:
            sources: a sentence each.
            targets: its translation.

        Raises:
            InputError: the numbers differ, a side has more tokens than learned positions, or the
                translator is an export, or its model has no attention.
        """
        if isinstance(self.graph, SavedGraph):
            raise InputError("an export tells only a mean of its attention; give a run folder")
        self._check_attention()
        found = self._of_pairs(self.graph.attention_maps, sources, targets, _attention)
        return [AttentionMaps(*of_pair) for of_pair in found]

    def _split(self, texts: Sequence[str]) -> list[list[Part]]:
        """The parts that each text is translated in: its lines, long ones in several."""
        lines = [text.split("\n") for text in texts]
        flat = [line for of_text in lines for line in of_text]
        limit = self.graph.limits.max_source_tokens
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

        def of_batch(rows):
            return self.graph.complete(strings_tensor(texts, rows), strings_tensor(prefixes, rows))

        found = [[BLANK] for _ in texts]
        batches = self._batches(self._count(texts), self.graph.width)
        for row, output in row_by_row(batches, of_batch):
            found[row] = list(hypotheses_of(output)) or [NOTHING]
        return found

    def _aligned(
        self, sources: Sequence[str], found: Sequence[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """The same hypotheses, with alignments where they have any."""
        pairs = [
            (source, hypothesis.text)
            for source, hypotheses in zip(sources, found, strict=True)
            for hypothesis in hypotheses
        ]
        lengths = self._count_target([text for _, text in pairs])
        # Blank, or cut at the last of learned positions: with an end it would not fit.
        of_source = self._count([text for text, _ in pairs])
        fitting = (lengths > 0) & self.graph.limits.can_score(of_source, lengths)
        chosen = [pair for pair, fits in zip(pairs, fitting, strict=True) if fits]
        alignments = iter(self.align(*zip(*chosen, strict=True)) if chosen else [])
        fits = iter(fitting)
        return [
            [
                dataclasses.replace(hypothesis, alignment=next(alignments))
                if next(fits)
                else hypothesis
                for hypothesis in hypotheses
            ]
            for hypotheses in found
        ]

    def _of_pairs(
        self, function: Callable, sources: Sequence[str], targets: Sequence[str], made: Callable
    ) -> list:
        """What is made of what a function of the graph gives for each pair."""

        def of_batch(rows):
            return function(strings_tensor(sources, rows), strings_tensor(targets, rows))

        lengths = self._pair_lengths(sources, targets)
        results = [None] * len(lengths)
        # With the end token, so that a pair of blanks is one too.
        for row, output in row_by_row(self._batches(lengths + 1, width=1), of_batch):
            results[row] = made(output)
        return results

    def _pair_lengths(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        """Tokens of the longer side of each pair, if all fit the model."""
        sources, targets = checked_strings("sources", sources), checked_strings("targets", targets)
        if len(sources) != len(targets):
            raise InputError(f"{len(sources)} sources for {len(targets)} targets")
        of_source, of_target = self._count(sources), self._count_target(targets)
        lengths = np.maximum(of_source, of_target)
        limits = self.graph.limits
        for index in np.flatnonzero(~limits.can_score(of_source, of_target))[:1]:
            if lengths[index] > limits.max_scored_tokens:
                has, limit = f"{lengths[index]} tokens on a side", limits.max_scored_tokens
            else:
                has = f"{of_source[index] + of_target[index]} tokens on both sides together"
                limit = limits.max_pair_tokens
            reason = f"{has}, but the model reads {limit}. Split it."
            raise TextTooLongError("pair", int(index), reason)
        return lengths

    def _check_attention(self) -> None:
        if not self.graph.has_attention:
            raise InputError(NO_ATTENTION)

    def _check_prefixes(self, prefixes: Sequence[str]) -> None:
        limit = self.graph.limits.max_prefix_tokens
        lengths = self._count_target(prefixes)
        for index in np.flatnonzero(lengths > limit)[:1]:
            raise TextTooLongError(
                "prefix",
                int(index),
                f"{lengths[index]} tokens, but there is room for {limit}.",
            )

    def _count(self, texts: Sequence[str]) -> np.ndarray:
        return self.graph.count_tokens(strings_tensor(texts))["tokens"].numpy()

    def _count_target(self, texts: Sequence[str]) -> np.ndarray:
        return self.graph.count_target_tokens(strings_tensor(texts))["tokens"].numpy()

    def _batches(self, lengths: np.ndarray, width: int) -> Iterator[np.ndarray]:
        return batches_of_like_length(
            lengths, width, self.max_batch_tokens, self.max_batch_sentences
        )


def _score(output: dict[str, np.ndarray]) -> TargetScore:
    tokens = pieces_of(output["tokens"])
    total = float(output["log_probability"])
    of_tokens = output["token_log_probabilities"][: len(tokens)].tolist()
    return TargetScore(tokens, of_tokens, total, _exp(-total / len(tokens)))


def _attention(output: dict[str, np.ndarray]) -> tuple[list[str], list[str], np.ndarray]:
    """The tokens of both sides, and the weights between them."""
    source, target = pieces_of(output["source_tokens"]), pieces_of(output["target_tokens"])
    return source, target, output["weights"][..., : len(target), : len(source)]


def _words(tokens: Sequence[str], word_indices: Callable) -> list[int]:
    """The word of each piece; the end token, which comes last, has none."""
    return [*word_indices(tokens[:-1]), NO_WORD] if tokens[-1:] == [_END] else word_indices(tokens)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
