"""Embeddings that begin with pretrained word vectors."""

from typing import NamedTuple

import numpy as np

from kformer.errors import InputError
from kformer.models.base import SequenceModel
from kformer.text import Coverage, Tokenizers, embedding_matrix, open_vectors
from training.config import Config
from training.data.prepare import PreparedText
from training.data.store import SIDES

# Tokens counted at a time, so that memory does not grow with the text.
_CHUNK = 2**24


class Pretrained(NamedTuple):
    """What an embedding begins with."""

    table: np.ndarray  # (vocab_size, embedding_dim), spread as in the file
    coverage: Coverage


def check_vectors(config: Config) -> None:
    """Refuses vectors that cannot be those of the model, as far as their first line tells.

    Raises:
        InputError: naming the key and the file.
    """
    width, like_layers = config.model.embedding_dim, ""
    if width is None:
        width, like_layers = config.model.d_model, ", as model.d_model"
    for side, name in _files(config):
        try:
            dimension = open_vectors(name).dimension
        except InputError as error:
            raise InputError(f"train.{side}_vectors: {error}") from error
        if dimension != width:
            raise InputError(
                f"train.{side}_vectors: {name}: its vectors are of {dimension} numbers, so "
                f"model.embedding_dim must be {dimension}. Received: {width}{like_layers}"
            )


def read_vectors(config: Config, prepared: PreparedText) -> dict[str, Pretrained]:
    """The tables that embeddings begin with, by "source" or "target"; empty: new weights.

    Raises:
        InputError: a file is malformed, or has no word of the vocabulary.
    """
    check_vectors(config)
    tables = {}
    for side, name in _files(config):
        tokenizer = getattr(Tokenizers.load(prepared.tokenizer), side)
        tokens = getattr(prepared.train, f"{side}_tokens")
        counts = np.zeros(tokenizer.vocab_size, np.int64)
        for start in range(0, len(tokens), _CHUNK):
            counts += np.bincount(tokens[start : start + _CHUNK], minlength=len(counts))
        tables[side] = Pretrained(
            *embedding_matrix(tokenizer.words(), open_vectors(name), config.train.seed, counts)
        )
    return tables


def begin_with_vectors(model: SequenceModel, tables: dict[str, Pretrained]) -> None:
    """Gives a new model's embeddings their tables, all numbers multiplied by one factor.

    Published vectors are many times as wide as new embeddings: of GloVe's numbers of 50 dimensions
    the root mean square is 0.6, of an embedding's with d_model 256 0.06. Unchanged, and multiplied
    by sqrt(d_model) with model.scale_embedding, they would drown the positions that are added and
    the logits of a tied output, and an optimizer's steps would hardly move them. So they enter with
    the root mean square that new weights have; what the numbers are to each other stays.
    """
    for side, (table, _) in tables.items():
        embedding = getattr(model, f"{side}_embedding").embedding
        usual = _root_mean_square(embedding.numpy())
        embedding.assign(table * (usual / max(_root_mean_square(table), 1e-12)))


def _files(config: Config) -> list[tuple[str, str]]:
    files = [(side, getattr(config.train, f"{side}_vectors")) for side in SIDES]
    return [(side, name) for side, name in files if name is not None]


def _root_mean_square(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(numbers, dtype=np.float64))))
