"""Texts to ids through the SentencePiece package, for processes that do without TensorFlow."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from kformer.subwords.pieces import SPACE_MARK, TYPED_SPACE_MARK, check_reserved
from kformer.subwords.sample import Sampler


class Encoder:
    """The ids that `kformer.text.SentencePieceTokenizer` gives, without a graph.

    Args:
        model: a serialized SentencePiece `ModelProto` with our reserved ids, as `learn`,
            `byte_model` and `adopt` make it.

    Raises:
        ValueError: `model` is something else.

    Attributes:
        vocab_size: number of ids, the reserved ones included.
        is_byte: bool `(vocab_size,)`, the ids that are a byte of a character without a piece.
        can_sample: whether a text can be cut in several ways: unigrams and BPE.

    Example:
        ids, lengths = Encoder(model).encode(["How are you?", "Fine."])
        how_are_you, fine = np.split(ids, np.cumsum(lengths)[:-1])
    """

    def __init__(self, model: bytes):
        self._processor = load(model)
        self.vocab_size = self._processor.vocab_size()
        ids = list(range(self.vocab_size))
        check_reserved(self._processor.id_to_piece(ids))
        self.is_byte = np.array(self._processor.is_byte(ids))
        trainer = ModelProto.FromString(model).trainer_spec
        self.can_sample = trainer.model_type in (TrainerSpec.UNIGRAM, TrainerSpec.BPE)
        self._model = model
        self._samplers: dict[float, Sampler] = {}

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of texts in normal form, on one core. Adds no start and no end.

        Args:
            texts: each as `normal_form` gives it.

        Returns:
            The ids of all texts one after the other, int32 `(ids,)`, and how many of them each
            text has, int64 `(texts,)`.
        """
        return _flat(self._processor.encode(_spelled(texts), num_threads=1))

    def sample(
        self, texts: Sequence[str], alpha: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the same texts, each cut into pieces by chance: subword regularisation.

        The same arguments give the same ids. Characters, bytes and whole words can be cut in one
        way only.

        Args:
            texts: each as `normal_form` gives it.
            alpha: of unigrams the smoothing exponent of their probabilities, over all cuts (Kudo
                2018, arXiv:1804.10959): 0 makes all equally likely, and the larger it is the
                nearer they are to those of `encode`. Of BPE the probability of leaving out a
                merge (Provilkov et al. 2020, arXiv:1910.13267): 0 gives those of `encode`.
            seed: an integer not below 0.

        Returns:
            As `encode`.
        """
        if not self.can_sample:
            return self.encode(texts)
        if alpha not in self._samplers:
            self._samplers[alpha] = Sampler(self._model, alpha)
        return self._samplers[alpha](*self.encode(texts), seed)


def load(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """A model as the SentencePiece package runs it.

    Raises:
        ValueError: it is no SentencePiece model.
    """
    if not model:
        raise ValueError("it is empty")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError("it is not a SentencePiece model") from error


def _spelled(texts: Iterable[str]) -> list[str]:
    return [text.replace(SPACE_MARK, TYPED_SPACE_MARK) for text in texts]


def _flat(ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    flat = np.fromiter(itertools.chain.from_iterable(ids), np.int32, lengths.sum())
    return flat, lengths
