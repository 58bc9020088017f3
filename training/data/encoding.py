"""Text to ids for processes that only prepare text: the ids of the tokenizers in the graph."""

import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.subwords.encode import Encoder as SubwordEncoder
from kformer.vocabulary_files import vocabulary_files


class Encoder(Protocol):
    """What turns texts in normal form into ids."""

    vocab_size: int
    is_byte: np.ndarray
    """Which ids are bytes of characters that have no piece, bool (vocab_size,)."""
    can_sample: bool
    """Whether a text can be cut in several ways."""

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """All ids, int32 (tokens,), and how many each text has, int64 (texts,)."""

    def sample(
        self, texts: Sequence[str], alpha: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Likewise, each text split one of many ways, which are drawn anew for each seed."""


class Encoders(NamedTuple):
    """Those of both sides; the same twice where the vocabulary is shared."""

    source: Encoder
    target: Encoder


def load_encoders(folder: Path) -> Encoders:
    """The encoders of vocabularies saved in a folder: joint.*, or source.* and target.*.

    Raises:
        InputError: there are none, or one is damaged.
    """
    loaded = {name: _load(path) for name, path in vocabulary_files(folder).items()}
    joint = loaded.get("joint")
    return Encoders(loaded.get("source", joint), loaded.get("target", joint))


def _load(path: Path) -> Encoder:
    if path.suffix != ".model":
        return _WordEncoder(path)
    try:
        return SubwordEncoder(path.read_bytes())
    except ValueError as error:
        raise InputError(
            f"{path}: is damaged ({error}); delete {path.parent.parent} and start again"
        ) from error


class _WordEncoder:
    """Words are split in the graph and nowhere else, so this kind alone loads TensorFlow."""

    def __init__(self, path: Path):
        import_tensorflow()
        import tensorflow as tf

        from kformer.text import WordTokenizer

        if multiprocessing.parent_process() is not None:
            # Every process would take a GPU's memory for itself, and words need none.
            tf.config.set_visible_devices([], "GPU")
        self._tokenizer = WordTokenizer.load(path)
        self.vocab_size = self._tokenizer.vocab_size
        self.is_byte = np.zeros(self.vocab_size, bool)
        self.can_sample = False

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = self._tokenizer.tokenize(list(texts))
        return ids.values.numpy(), ids.row_lengths().numpy()

    def sample(
        self, texts: Sequence[str], alpha: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.encode(texts)
