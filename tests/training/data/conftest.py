from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from training.data.rows import Pair
from training.data.store import build_store


class FakeTokenizer:
    """Words that are numbers, as ids: "5 7" is [5, 7]."""

    def tokenize(self, texts):
        return tf.strings.to_number(tf.strings.split(texts), tf.int32)


@pytest.fixture
def tokenizers():
    return SimpleNamespace(source=FakeTokenizer(), target=FakeTokenizer())


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
def store(tmp_path, tokenizers):
    """200 pairs of random ids; the first source id is 1000 + the number of the pair."""
    rng = np.random.default_rng(5)
    pairs = []
    for i, (source, target) in enumerate(zip(*lengths_like_text(200), strict=True)):
        ids = [1000 + i, *rng.integers(4, 900, source - 2)], rng.integers(4, 900, target - 1)
        pairs.append(Pair(*(" ".join(map(str, side)) for side in ids)))
    return build_store(pairs, tokenizers, tmp_path / "store", max_length=200)
