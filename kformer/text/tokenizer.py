"""What a tokenizer is: strings to ids and back, inside the graph."""

import abc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.subwords.pieces import RESERVED_PIECES
from kformer.text.normalize import normalize


class Tokenizer(tf.Module, abc.ABC):
    """Strings to ids and back; every method on tensors works in a `tf.function` and a SavedModel.

    Ids 0 to 3 are reserved for padding, unknown, start and end. A subclass says how to split
    (`_split`) and how to join (`_join`) normalized text, and how it is kept in a file.
    """

    suffix: ClassVar[str]
    """The ending of the files this kind is saved in; it tells the kinds apart."""

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, the reserved ones included: ids are `0 <= id < vocab_size`."""

    @abc.abstractmethod
    def pieces(self) -> list[str]:
        """The vocabulary in the order of its ids."""

    @abc.abstractmethod
    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids int32 `(batch, None)` of normalized texts `(batch,)`."""

    @abc.abstractmethod
    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Texts `(batch,)` of ids int32 `(batch, None)` free of padding, start and end."""

    @staticmethod
    @abc.abstractmethod
    def word_indices(pieces: Sequence[str]) -> list[int]:
        """For each piece of a text the index of its word; words are what spaces part."""

    @staticmethod
    @abc.abstractmethod
    def whole_word(piece: str) -> str | None:
        """The word or punctuation mark that a piece is by itself; None if it is no such thing."""

    @abc.abstractmethod
    def _to_bytes(self) -> bytes:
        """The content of the file that `_from_bytes` restores."""

    @classmethod
    @abc.abstractmethod
    def _from_bytes(cls, content: bytes) -> Self:
        """Restores what `_to_bytes` gave; raises ValueError saying what is wrong with it."""

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Normalizes and splits texts. Adds no start and no end.

        Args:
            texts: string `(batch,)`.

        Returns:
            Ids, an int32 ragged tensor `(batch, None)`; an empty text has none.
        """
        return self._split(normalize(texts))

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Texts of ids, read up to the first end.

        Padding and start are skipped wherever they stand, and `UNK_ID` shows as "⁇". The result
        is normalized, so whatever a model generates is one line of valid text.

        Args:
            ids: integer `(batch, length)`, ragged or padded.

        Returns:
            A string tensor `(batch,)`.

        Raises:
            ValueError: `ids` does not have two axes.
            tf.errors.InvalidArgumentError: an id before the end is negative or not below
                `vocab_size`.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ids = tf.convert_to_tensor(ids)
        if ids.shape.rank != 2:
            raise ValueError(f"ids must have the shape (batch, length). Received: {ids.shape}")
        ended = tf.cumsum(tf.cast(ids == END_ID, tf.int32), axis=1) > 0
        shown = ~ended & (ids != PAD_ID) & (ids != START_ID)
        wrong = shown & ((ids < 0) | (ids >= self.vocab_size))
        # A gather on a GPU would not raise, and SentencePiece raises OutOfRangeError, which
        # training loops take for the end of the data.
        message = f"ids must be at least 0 and below vocab_size = {self.vocab_size}. Received:"
        check = tf.debugging.Assert(~tf.reduce_any(wrong), [message, ids[wrong]])
        with tf.control_dependencies([check] if check is not None else []):
            shown_ids = tf.ragged.boolean_mask(tf.cast(ids, tf.int32), shown)
        return normalize(self._join(shown_ids))

    def words(self) -> list[str | None]:
        """The word or punctuation mark that each id is by itself, None where it is none."""
        reserved = len(RESERVED_PIECES)
        return [None] * reserved + [self.whole_word(piece) for piece in self.pieces()[reserved:]]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the tokenizer to the file `path`, whose name should end in `suffix`.

        The file appears at once and whole, or not at all. Its folder is made if need be.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        unfinished.write_bytes(self._to_bytes())
        unfinished.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Restores a tokenizer of this kind from the file `path`.

        Raises:
            InputError: the file is missing or is not such a tokenizer.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise InputError(
                f"{path}: cannot read the tokenizer ({error.strerror}). "
                f"Give a file written by {cls.__name__}.save."
            ) from error
        try:
            return cls._from_bytes(content)
        except ValueError as error:
            raise InputError(
                f"{path}: not a {cls.__name__}: {error}. Learn and save it again."
            ) from error
