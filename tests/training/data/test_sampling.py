from functools import partial

import numpy as np
import pytest

from kformer.subwords.encode import load
from kformer.subwords.learn import learn
from training.data.batches import TrainingBatches
from training.data.encoding import load_encoders
from training.data.rows import Pair
from training.data.sampling import SampledStore
from training.data.tokenising import build_store

TEXTS = ["A house by the sea.", "Trees grow slowly here.", "What does a seal eat?",
         "The house is old and grey.", "Slowly, the sea eats the land."]  # fmt: skip
PAIRS = [
    Pair(f"{text} {i}", other)
    for i in range(20)
    for text, other in zip(TEXTS, TEXTS[::-1], strict=True)
]


@pytest.fixture(params=["unigram", "bpe"])
def vocabulary(request, tmp_path):
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / "joint.model").write_bytes(learn(TEXTS * 3, 330, request.param))
    return folder


@pytest.fixture
def sampled(vocabulary, tmp_path):
    """Makes sampled stores of the same text, each in a folder of its own."""
    encoders = partial(load_encoders, vocabulary)
    usual = build_store(PAIRS, encoders, tmp_path / "usual", max_length=40)
    made = []

    def sampled(seed=1, alpha=0.3):
        folder = tmp_path / f"sampled {len(made)}"
        made.append(SampledStore(lambda: iter(PAIRS), encoders, usual, alpha, seed, folder))
        return made[-1]

    yield sampled
    for store in made:
        store.close()


def test_each_epoch_splits_the_same_text_another_way(sampled, vocabulary):
    processor = load((vocabulary / "joint.model").read_bytes())
    store = sampled()
    epochs = [store.epoch(epoch) for epoch in range(3)]
    assert len({tokens.meta.fingerprint for tokens in epochs}) == 3
    for tokens in epochs:
        assert len(tokens) == len(PAIRS)
        for number, pair in enumerate(PAIRS):
            for ids, text in zip(tokens.pair(number), pair, strict=True):
                assert processor.decode(ids.tolist()) == text
    usual = store.usual
    assert epochs[0].meta.source_tokens > usual.meta.source_tokens


def test_an_epoch_is_a_function_of_the_seed_and_its_number(sampled):
    one, again, other = sampled(seed=1), sampled(seed=1), sampled(seed=2)
    fingerprints = [one.epoch(epoch).meta.fingerprint for epoch in (0, 1, 5)]
    # In another order, as after a restart.
    assert [again.epoch(epoch).meta.fingerprint for epoch in (5, 0, 1)] == [
        fingerprints[2], *fingerprints[:2],
    ]  # fmt: skip
    assert other.epoch(0).meta.fingerprint != fingerprints[0]


def test_epochs_that_are_over_are_removed_but_can_still_be_read(sampled):
    store = sampled()
    first = store.epoch(0)
    ids = first.pair(3)[0].tolist()
    for epoch in range(1, 6):
        store.epoch(epoch)
    left = {path.name for path in store.folder.iterdir() if not path.name.startswith(".")}
    assert left <= {"5", "6"}
    assert first.pair(3)[0].tolist() == ids
    store.close()
    assert not store.folder.exists()


def test_batches_take_their_tokens_from_the_epoch_they_are_in(sampled):
    store, other = sampled(), sampled()
    batches = TrainingBatches(store, max_tokens=600, seed=3).dataset().as_numpy_iterator()
    for epoch in range(2):
        tokens = other.epoch(epoch)
        expected = sorted(tuple(tokens.pair(i)[0].tolist()) for i in range(len(tokens)))
        found = []
        while len(found) < len(PAIRS):
            (source, _), _ = next(batches)
            # The end token and padding are not in the store.
            found += [tuple(row[: np.argmax(row == 3)].tolist()) for row in source]
        assert sorted(found) == expected


def test_going_on_makes_no_tokens_of_epochs_that_are_over(sampled):
    first = TrainingBatches(sampled(), max_tokens=600, seed=3)
    whole = first.dataset().as_numpy_iterator()
    for _ in range(2 * len(PAIRS)):
        next(whole)
        if len(first.state()["epochs"]) == 3:
            break
    start = sum(first.state()["epochs"][:2]) + 1
    made = []
    store = sampled()
    usual, store._make = store._make, lambda epoch: made.append(epoch) or usual(epoch)
    later = TrainingBatches(store, max_tokens=600, seed=3)
    later.restore(first.state())
    got = next(later.dataset(start).as_numpy_iterator())
    expected = next(first.dataset(start).as_numpy_iterator())
    np.testing.assert_array_equal(got[1], expected[1])
    assert min(made) == 2
