"""Text that a language model writes: prompts in, texts that begin with them out."""

import os
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from kformer.batching import (
    batches_of_like_length,
    checked_strings,
    row_by_row,
    strings_tensor,
)
from kformer.errors import InputError
from kformer.graph import Source, TranslationGraph
from kformer.ids import END_ID
from kformer.limits import Limits
from kformer.models.base import SequenceModel
from kformer.run_folder import RunFolder
from kformer.search import Sample, Search
from kformer.search.paths import PathSearch
from kformer.text import Tokenizers
from kformer.translation import NOTHING, Hypothesis, TargetScore, hypotheses_of
from kformer.translator import TextTooLongError, Translator

# There is room for all of it from the start.
_LONGEST = 2**17


class GenerationGraph(TranslationGraph):
    """A model of lines of one language, in functions on string tensors.

    Those of `TranslationGraph`, where every source is empty: `translate` goes on with a text,
    `complete` writes texts that begin with its prefixes, `score` takes a text as the target.

    Args:
        model: a language model.
        tokenizers: the vocabulary that it was trained with.
        search: how to search; default: sampling.
        max_length: most tokens after a prompt, the end included.
    """

    def __init__(
        self,
        model: SequenceModel,
        tokenizers: Tokenizers,
        search: Search | None = None,
        *,
        max_length: int = 100,
    ):
        super().__init__(model, tokenizers, search or Sample())
        if not 1 <= max_length <= _LONGEST:
            raise InputError(f"max_length must be from 1 to {_LONGEST:,}. Received: {max_length}")
        self.max_length = max_length
        # Sources are empty, so what follows does not depend on them.
        self.limits = Limits.of_model(model, 0, max_length, max_source_tokens=0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def translate_nbest(self, text):
        """Texts that begin with each text; see `complete`."""
        return self.complete(tf.fill(tf.shape(text), ""), text)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "prompt"),
            tf.TensorSpec([None], tf.int32, "draws"),
        ]
    )
    def write(self, prompt, draws):
        """Texts that begin with prompts; those of equal prompts differ.

        Args:
            prompt: string (batch,).
            draws: int32 (batch,), numbers that samples hang on; see `Search`.

        Returns:
            As `complete`.
        """
        return self._complete(tf.fill(tf.shape(prompt), ""), prompt, draws)

    @property
    def has_attention(self):
        # To an empty source there is nothing to attend to.
        return False

    def _read(self, text):
        ends = tf.fill([tf.size(text), 1], END_ID)
        no = tf.fill([tf.size(text)], False)
        return Source(ends, cut=no, blank=no)


class Generator:
    """Continues prompts, in batches of like length.

    With one seed the nth prompt that a generator gets draws the same, whatever the others are.

    Args:
        graph: what writes batches of texts.
        max_batch_tokens: most tokens, padding included, times hypotheses, in work at once.
    """

    def __init__(self, graph: GenerationGraph, *, max_batch_tokens: int = 8192):
        if max_batch_tokens < 1:
            raise InputError(f"max_batch_tokens must be at least 1. Received: {max_batch_tokens}")
        self.graph = graph
        self.max_batch_tokens = max_batch_tokens
        self._stream = None
        self._drawn = 0

    @classmethod
    def from_run(
        cls,
        path: str | os.PathLike,
        search: Search | None = None,
        *,
        max_batch_tokens: int = 8192,
        **options,
    ) -> "Generator":
        """The generator of a run folder's best model.

        Args:
            path: of a run that was trained on lines of one language.
            search, **options: of `GenerationGraph`.
            max_batch_tokens: of the constructor.

        Raises:
            InputError: the folder is not a complete run folder or its model translates.
        """
        model, tokenizers = load_language_model(path)
        graph = GenerationGraph(model, tokenizers, search, **options)
        return cls(graph, max_batch_tokens=max_batch_tokens)

    def generate(self, prompts: Sequence[str]) -> list[list[Hypothesis]]:
        """Texts that begin with the prompts; an empty one begins nothing.

        Args:
            prompts: a beginning of one line each.

        Returns:
            The texts of each prompt, best first, no two the same: prompt and all, as the
            vocabulary writes it.

        Raises:
            InputError: a prompt has more tokens than the model has positions.
        """
        prompts = checked_strings("prompts", prompts)
        lengths = self._lengths(prompts)
        found = [[NOTHING] for _ in prompts]
        draws = self._next_draws(len(prompts))
        width, most = self.graph.width, self.max_batch_tokens

        def of_batch(rows):
            return self.graph.write(strings_tensor(prompts, rows), draws[rows])

        batches = batches_of_like_length(lengths + self.graph.max_length, width, most)
        for row, output in row_by_row(batches, of_batch):
            found[row] = list(hypotheses_of(output)) or [NOTHING]
        return found

    def stream(self, prompt: str) -> Iterator[str]:
        """The text that `generate` writes for one prompt, in pieces, as soon as they are sure.

        Args:
            prompt: see `generate`.

        Returns:
            Parts of the text in their order.

        Raises:
            InputError: the search keeps several hypotheses, or as for `generate`.
        """
        if self.graph.width != 1 or not isinstance(self.graph.search, PathSearch):
            raise InputError("only one text, drawn or greedy, can be written as it comes")
        self._lengths([prompt])
        self._stream = self._stream or self.graph.search.stream(self.graph.model)
        source, limits, prefixes = self.graph.begin(strings_tensor([""]), strings_tensor([prompt]))
        ids, shown = [], ""
        encoded = self.graph.model.encode(source.ids)
        for tokens in self._stream(encoded, limits, prefixes, self._next_draws(1)):
            ids.append(int(tokens[0, 0]))
            text = _sure(self._text(ids))
            if len(text) > len(shown):
                yield text[len(shown) :]
                shown = text
        yield self._text(ids)[len(shown) :]

    def score(self, texts: Sequence[str]) -> list[TargetScore]:
        """How likely the model holds given texts.

        Raises:
            InputError: a text has more tokens than there is room for.
        """
        translator = Translator(self.graph, max_batch_tokens=self.max_batch_tokens)
        return translator.score([""] * len(texts), texts)

    def count_tokens(self, texts: Sequence[str]) -> np.ndarray:
        """The tokens of each text, the end not counted."""
        return self.graph.count_target_tokens(strings_tensor(texts))["tokens"].numpy()

    def _next_draws(self, prompts: int) -> np.ndarray:
        """The numbers of the next prompts, int32 (prompts,)."""
        numbers = np.arange(self._drawn, self._drawn + prompts)
        self._drawn += prompts
        return numbers.astype("int32")

    def _lengths(self, prompts: Sequence[str]) -> np.ndarray:
        """Tokens of each prompt, if all fit the model."""
        lengths, limit = self.count_tokens(prompts), self.graph.limits.max_prefix_tokens
        for index in np.flatnonzero(lengths > limit)[:1]:
            reason = f"{lengths[index]} tokens, but the model has room for {limit}"
            raise TextTooLongError("prompt", int(index), reason)
        return lengths

    def _text(self, ids: list[int]) -> str:
        return self.graph.tokenizers.target.detokenize(tf.constant([ids]))[0].numpy().decode()


def load_language_model(path: str | os.PathLike) -> tuple[SequenceModel, Tokenizers]:
    """Model and vocabularies of a run that was trained on lines of one language.

    Raises:
        InputError: the folder is not a complete run folder or its model translates.
    """
    run = RunFolder.open(path)
    if not run.of_lines:
        raise InputError(
            f"{run.path}: was trained on pairs, and translates: python -m kformer.translate "
            f"{run.path}. To write text, train model.kind language_model on a .txt"
        )
    return run.load()


def _sure(text: str) -> str:
    """The text but for what its next token may change: its last character, with its marks, and
    bytes that are no character yet."""
    text = text.rstrip("\ufffd")
    end = len(text) - 1
    while end > 0 and unicodedata.combining(text[end]):
        end -= 1
    return text[: max(end, 0)]
