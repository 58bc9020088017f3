import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from kformer.errors import InputError
from kformer.text import END_ID, PAD_ID, START_ID
from training.data.batches import TrainingBatches, assemble, evaluation_batches
from training.data.plan import plan_epoch
from training.data.shapes import Shape, choose_shapes
from training.data.store import TokenStore

OPTIONS = {"max_tokens": 400, "seed": 7}


def plans(store, epochs, **options):
    """Plans of the first epochs."""
    return [
        plan_epoch(
            store.epoch(epoch).source_lengths,
            store.epoch(epoch).target_lengths,
            epoch=epoch,
            **OPTIONS,
            **options,
        )
        for epoch in range(epochs)
    ]


def arrays(batch):
    return [np.asarray(array) for array in tf.nest.flatten(batch)]


def same(one, other):
    return all(map(np.array_equal, arrays(one), arrays(other)))


def numbers(batches):
    """Numbers of the pairs in batches of the `store` fixture, sorted."""
    firsts = np.concatenate([np.asarray(source)[:, 0] for (source, _), _ in batches])
    return np.sort(firsts[firsts != PAD_ID]) - 1000


@pytest.fixture
def shapes(store):
    return choose_shapes(store.source_lengths, store.target_lengths, max_tokens=400, count=4)


def token_store(sources, targets):
    arrays = {}
    for side, texts in (("source", sources), ("target", targets)):
        arrays[f"{side}.tokens"] = np.concatenate(texts)
        arrays[f"{side}.offsets"] = np.cumsum([0, *map(len, texts)])
    return TokenStore(Path(), SimpleNamespace(pairs=len(sources)), arrays)


@pytest.fixture
def store(text_lengths):
    """200 pairs of random ids; the first source id is 1000 + the number of the pair."""
    rng = np.random.default_rng(5)
    sources, targets = (
        [rng.integers(4, 900, length - 1, np.int32) for length in lengths]
        for lengths in text_lengths(200)
    )
    for i, source in enumerate(sources):
        source[0] = 1000 + i
    return token_store(sources, targets)


class Sampled:
    """Pairs whose tokens differ from epoch to epoch: in odd epochs the last one is left out."""

    def __init__(self, store):
        pairs = [store.pair(i) for i in range(len(store))]
        shorter = [[text[: max(1, len(text) - 1)] for text in pair] for pair in pairs]
        self.stores = store, token_store(*zip(*shorter, strict=True))

    def epoch(self, epoch):
        return self.stores[epoch % 2]


def naive(store, indices, shape):
    pairs = [tuple(side.tolist() for side in store.pair(i)) for i in indices]
    columns = (
        [source + [END_ID] for source, _ in pairs],
        [[START_ID] + target for _, target in pairs],
        [target + [END_ID] for _, target in pairs],
    )
    padded = []
    for column, side in zip(columns, (1, 2, 2), strict=True):
        longest = max(map(len, column))
        width = shape[side] if shape else longest + longest % 2
        rows = shape.rows if shape else len(column)
        column = column + [[]] * (rows - len(column))
        padded.append([row + [PAD_ID] * (width - len(row)) for row in column])
    return padded


@pytest.mark.parametrize("shape", [None, Shape(250, 130, 140)])
def test_assemble_equals_a_naive_reference(store, shape):
    (plan,) = plans(store, 1)
    for i in range(len(plan)):
        (source, target_input), labels = assemble(store, plan[i], shape)
        for array, expected in zip(
            (source, target_input, labels), naive(store, plan[i], shape), strict=True
        ):
            assert array.dtype == np.int32
            assert array.tolist() == expected


def test_the_longest_pair_fills_its_shape_to_the_last_position(store):
    longest = np.argmax(store.target_lengths)
    shape = Shape(1, *(int(side[longest]) for side in (store.source_lengths, store.target_lengths)))
    (source, target_input), labels = assemble(store, np.array([longest]), shape)
    assert source[0, -1] == labels[0, -1] == END_ID
    assert PAD_ID not in target_input


def test_the_label_of_each_position_is_the_next_decoder_input(store):
    (_, target_input), labels = assemble(store, np.arange(20))
    assert (target_input[:, 0] == START_ID).all() and END_ID not in target_input
    ends = labels == END_ID
    assert (ends.sum(axis=1) == 1).all()
    following = np.pad(target_input[:, 1:], ((0, 0), (0, 1)), constant_values=PAD_ID)
    assert np.array_equal(np.where(ends, PAD_ID, labels), following)


def test_assembling_a_large_batch_takes_no_time():
    # Measured 0.7 ms; an update of such a batch on a fast GPU takes over 50.
    rng = np.random.default_rng(0)
    offsets = np.arange(0, 20 * 50_001, 20)
    tokens = rng.integers(4, 30_000, offsets[-1], dtype=np.uint16)
    store = SimpleNamespace(
        source_tokens=tokens, target_tokens=tokens, source_offsets=offsets, target_offsets=offsets
    )
    durations = []
    for _ in range(20):
        indices = rng.integers(50_000, size=25_000 // 22)
        start = time.perf_counter()
        assemble(store, indices)
        durations.append(time.perf_counter() - start)
    assert min(durations) < 5e-3


@pytest.mark.parametrize("kind", ["plain", "sampled", "weighted", "fixed"])
@pytest.mark.parametrize("offset", ["start", "inside", "last", "boundary", "second", "third"])
def test_a_resumed_stream_goes_on_at_the_exact_batch(store, shapes, offset, kind):
    options = {
        "weighted": {"corpus_pairs": [50, 150], "weights": [1.7, 0.3]},
        "fixed": {"shapes": shapes},
    }.get(kind, {})
    if kind == "sampled":
        store = Sampled(store)
    sizes = [len(plan) for plan in plans(store, 2, **options)]
    start = {
        "start": 0,
        "inside": 3,
        "last": sizes[0] - 1,
        "boundary": sizes[0],
        "second": sizes[0] + 2,
        "third": sizes[0] + sizes[1] + 1,
    }[offset]
    whole = TrainingBatches(store, **OPTIONS, **options).dataset().skip(start).take(4)
    resumed = TrainingBatches(store, **OPTIONS, **options).dataset(start).take(4)
    for expected, batch in zip(whole, resumed, strict=True):
        assert same(expected, batch)


def test_a_resumed_stream_does_not_sort_the_epochs_before(store, monkeypatch):
    arranged = []

    def watched(*lengths, epoch, **options):
        class Watched(SimpleNamespace):
            def __len__(self):
                return len(self.plan)

            def __getitem__(self, index):
                arranged.append(epoch)
                return self.plan[index]

        plan = plan_epoch(*lengths, epoch=epoch, **options)
        return Watched(plan=plan, shape=plan.shape)

    start = sum(len(plan) for plan in plans(store, 40))
    monkeypatch.setattr("training.data.batches.plan_epoch", watched)
    next(iter(TrainingBatches(store, **OPTIONS).dataset(start)))
    assert set(arranged) == {40}


@pytest.mark.parametrize("sampled", [False, True])
def test_the_stream_is_the_plans_of_one_epoch_after_another(store, sampled):
    store = Sampled(store) if sampled else store
    expected = [
        assemble(store.epoch(epoch), plan[i])
        for epoch, plan in enumerate(plans(store, 3))
        for i in range(len(plan))
    ]
    stream = TrainingBatches(store, **OPTIONS).dataset()
    for batch, reference in zip(islice(stream, len(expected)), expected, strict=True):
        assert same(batch, reference)


def test_the_stream_has_each_corpus_as_often_as_its_weight_says(store):
    options = {"corpus_pairs": [50, 150], "weights": [2, 0.3]}
    (plan,) = plans(store, 1, **options)
    seen = numbers(TrainingBatches(store, **OPTIONS, **options).dataset().take(len(plan)))
    assert np.array_equal(seen[:100], np.repeat(np.arange(50), 2))
    assert len(seen[100:]) == len(set(seen[100:])) == 45


def test_evaluation_has_every_pair_once_in_a_fixed_order(store, shapes):
    for fixed in (None, shapes):
        dataset = evaluation_batches(store, max_tokens=400, shapes=fixed)
        batches = list(dataset)
        assert np.array_equal(numbers(batches), np.arange(len(store)))
        widths = [max(source.shape[1], labels.shape[1]) for (source, _), labels in batches]
        assert widths == sorted(widths)
        assert dataset.cardinality() == len(batches)
        for batch, again in zip(batches, dataset, strict=True):
            assert same(batch, again)


def test_fixed_shapes_are_traced_once_each_over_training_and_evaluation(store, shapes):
    traced = []

    @tf.function
    def step(inputs, labels):
        traced.append((*inputs[0].shape, labels.shape[1]))
        return tf.reduce_sum(labels)

    (plan,) = plans(store, 1, shapes=shapes)
    training = list(TrainingBatches(store, shapes=shapes, **OPTIONS).dataset().take(len(plan)))
    assert np.array_equal(numbers(training), np.arange(len(store)))
    for batch in [*training, *evaluation_batches(store, max_tokens=400, shapes=shapes)]:
        step(*batch)
    assert len(traced) == len(set(traced)) > 1
    assert set(traced) <= set(shapes)


def test_datasets_declare_their_elements(store):
    ids = tf.TensorSpec((None, None), tf.int32)
    for dataset in (
        TrainingBatches(store, max_tokens=400, seed=1).dataset(),
        evaluation_batches(store, max_tokens=400),
    ):
        assert dataset.element_spec == ((ids, ids), ids)


def test_wrong_arguments_are_told_before_the_first_batch(store, shapes):
    for pattern, options in (
        ("max_tokens", {"max_tokens": 0}),
        ("seed", {"seed": -1}),
        ("weights", {"weights": [0]}),
        ("corpus_pairs", {"corpus_pairs": [1]}),
        ("shapes must hold", {"shapes": shapes[:1]}),
    ):
        with pytest.raises(InputError, match=pattern):
            TrainingBatches(store, **{**OPTIONS, **options}).dataset()
    with pytest.raises(InputError, match="start must not be negative"):
        TrainingBatches(store, **OPTIONS).dataset(-1)
    with pytest.raises(InputError, match="shapes must hold"):
        evaluation_batches(store, max_tokens=400, shapes=shapes[:1])
