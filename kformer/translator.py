"""Text, model and search in one: strings in, translations out."""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import END_ID
from kformer.models.base import SequenceModel
from kformer.run_folder import RunFolder
from kformer.search import greedy_search
from kformer.text import Tokenizers

_ROW_WIDTHS = 8
_IDS = tf.TensorSpec([None, None], tf.int32)


class TextTooLongError(InputError):
    """A text has more tokens than the model has learned positions.

    Args:
        index: of the text, from 0.
        tokens: how many it has.
        positions: how many the model has.
        name: what the message calls the text; default its number.
    """

    def __init__(self, index: int, tokens: int, positions: int, name: str | None = None):
        super().__init__(
            f"{name or f'text {index + 1}'}: {tokens} tokens, but the model has {positions} "
            "learned positions, one of them for the end. Split the text."
        )
        self.index, self.tokens, self.positions = index, tokens, positions


class Translator(tf.Module):
    """Translates strings with a trained model, by greedy search.

    A translation may have up to `length_factor * n + length_margin` tokens for a source of n, the
    end counted in both; the limit belongs to the sentence, so what it is batched with never
    changes its translation.

    Args:
        model: a model with the stepping protocol (`encode`, `init_state`, `step`).
        tokenizers: the vocabularies that it was trained with.
        length_factor, length_margin: the limit of a translation's length.
        max_batch_tokens: most source tokens, padding included, translated at a time.
    """

    def __init__(
        self,
        model: SequenceModel,
        tokenizers: Tokenizers,
        length_factor: float = 2.0,
        length_margin: int = 20,
        max_batch_tokens: int = 4096,
    ):
        super().__init__()
        self.model = model
        self.tokenizers = tokenizers
        self.length_factor = length_factor
        self.length_margin = length_margin
        self.max_batch_tokens = max_batch_tokens
        # One trace serves all shapes, and belongs to this translator.
        self._translate_ids = tf.function(self._search, input_signature=[_IDS])

    @classmethod
    def from_run(cls, path: str | os.PathLike, **options) -> "Translator":
        """The translator of a run folder's best model.

        Raises:
            InputError: the folder is not a complete run folder.
        """
        return cls(*RunFolder.open(path).load(), **options)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translates texts of any number and lengths; their order is kept.

        A text that is empty, or empty once normalised, translates to an empty string.

        Args:
            texts: one sentence, or any text of one line, each.

        Returns:
            One translation a text; no translation holds a line break.

        Raises:
            InputError: a text is longer than the learned positions of the model.
        """
        if isinstance(texts, str | bytes):
            raise InputError(f"texts must be a list of strings. Received: {texts!r}")
        texts = list(texts)
        if not texts:
            return []
        ids = self.tokenizers.source.tokenize(tf.constant(texts))
        lengths = ids.row_lengths().numpy()
        self._refuse_too_long(lengths)
        translations = [""] * len(texts)
        for rows in _batches(lengths, self.max_batch_tokens):
            tokens = self._translate_ids(_padded(tf.gather(ids, rows)))
            texts_of_rows = self.tokenizers.target.detokenize(tokens).numpy()
            for row, text in zip(rows, texts_of_rows, strict=True):
                translations[row] = text.decode()
        return translations

    def _search(self, source_ids):
        lengths = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)
        limits = tf.cast(self.length_factor * tf.cast(lengths, tf.float32), tf.int32)
        limits += self.length_margin
        if self._positions:
            limits = tf.minimum(limits, self._positions)
        encoded = self.model.encode(source_ids)
        state = self.model.init_state(encoded, tf.reduce_max(limits))
        return greedy_search(self.model.step, state, limits).tokens

    @property
    def _positions(self) -> int | None:
        """How many positions the model has, None if there is no end to them."""
        return self.model.max_length if self.model.positions == "learned" else None

    def _refuse_too_long(self, lengths):
        if self._positions and lengths.max() >= self._positions:
            raise TextTooLongError(int(lengths.argmax()), int(lengths.max()), self._positions)


def _batches(lengths: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in batches of like length, so that little is padded; empty rows are left out."""
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * _width(lengths[order[end]]) > max_tokens:
            yield order[start:end]
            start = end


def _padded(ids: tf.RaggedTensor) -> tf.Tensor:
    """int32 (batch, width): the rows with the end token, padded to one of a few widths."""
    ends = tf.fill([ids.nrows(), 1], END_ID)
    ids = tf.concat([ids, ends], axis=1)
    width = ids.bounding_shape(axis=1, out_type=tf.int32)
    return ids.to_tensor(shape=[None, _width(width - 1)])


def _width(length):
    """The width that a text of `length` tokens and its end are padded to."""
    return (length // _ROW_WIDTHS + 1) * _ROW_WIDTHS
