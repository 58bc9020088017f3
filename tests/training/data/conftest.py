import numpy as np
import pytest

from training.data.encoding import Encoders
from training.data.rows import Pair
from training.data.tokenising import build_store


class FakeEncoder:
    """Words that are numbers, as ids: "5 7" is [5, 7]. Id 2 is a byte."""

    def __init__(self, vocab_size=2**16):
        self.vocab_size = vocab_size
        self.is_byte = np.arange(vocab_size) == 2

    def encode(self, texts):
        ids = [[int(word) for word in text.split()] for text in texts]
        flat = [number for text in ids for number in text]
        return np.array(flat, np.int32), np.array([*map(len, ids)], np.int64)

    def sample(self, texts, alpha, seed):
        """Repeats each word once or twice, by chance."""
        rng = np.random.default_rng(seed)
        return self.encode(
            " ".join(word for word in text.split() for _ in range(1 + (rng.random() < alpha)))
            for text in texts
        )


@pytest.fixture
def encoders():
    """Loads encoders of words that are numbers; with sizes of their vocabularies if given."""

    def encoders(*sizes):
        return lambda: Encoders(*map(FakeEncoder, sizes or (2**16, 2**16)))

    return encoders


def lengths_like_text(count, seed=0):
    """Lengths of both sides, END included, spread like those of real sentence pairs."""
    rng = np.random.default_rng(seed)
    source = np.clip(rng.lognormal(2.6, 0.55, count), 1, 120)
    target = np.clip(source * rng.lognormal(0.1, 0.2, count), 1, 120)
    return source.astype(np.int32) + 1, target.astype(np.int32) + 1


@pytest.fixture
def text_lengths():
    return lengths_like_text


@pytest.fixture
def store(tmp_path, encoders):
    """200 pairs of random ids; the first source id is 1000 + the number of the pair."""
    rng = np.random.default_rng(5)
    pairs = []
    for i, (source, target) in enumerate(zip(*lengths_like_text(200), strict=True)):
        ids = [1000 + i, *rng.integers(4, 900, source - 2)], rng.integers(4, 900, target - 1)
        pairs.append(Pair(*(" ".join(map(str, side)) for side in ids)))
    return build_store(pairs, encoders(), tmp_path / "store", max_length=200)
