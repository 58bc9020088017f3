import time
from itertools import islice

import numpy as np
import pytest
import tensorflow as tf

from kformer.errors import InputError
from kformer.text import END_ID, PAD_ID, START_ID
from training.data.batches import assemble, evaluation_batches, plan_epoch, training_batches


def width(lengths, multiple):
    return -(-int(lengths.max()) // multiple) * multiple


def plan(lengths, *, max_tokens=3000, seed=1, epoch=0, **options):
    return plan_epoch(*lengths, max_tokens=max_tokens, seed=seed, epoch=epoch, **options)


def same(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def test_every_pair_is_in_exactly_one_batch(text_lengths):
    for count in (1, 2, 1000):
        batches = plan(text_lengths(count))
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(count))


def test_a_plan_is_a_pure_function_of_seed_and_epoch(text_lengths):
    lengths = text_lengths(2000)
    first = plan(lengths, seed=3, epoch=2)
    np.random.seed(0)
    assert same(first, plan(lengths, seed=3, epoch=2))
    assert not same(first, plan(lengths, seed=4, epoch=2))
    assert not same(first, plan(lengths, seed=3, epoch=3))
    assert not same(plan(lengths, seed=0, epoch=1), plan(lengths, seed=1, epoch=0))


def test_epochs_mix_pairs_into_different_batches(text_lengths):
    lengths = text_lengths(5000)
    first, second = ({frozenset(b.tolist()) for b in plan(lengths, epoch=e)} for e in (0, 1))
    assert len(first & second) <= 0.1 * len(first)


def test_batches_do_not_come_in_order_of_length(text_lengths):
    source, target = text_lengths(5000)
    means = [target[batch].mean() for batch in plan((source, target))]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


@pytest.mark.parametrize("multiple", [1, 4, 8])
@pytest.mark.parametrize("max_tokens", [64, 1000, 3000])
def test_padded_size_stays_within_the_budget(text_lengths, multiple, max_tokens):
    source, target = text_lengths(3000)
    options = {"max_tokens": max_tokens, "width_multiple": multiple}
    for batch in plan((source, target), **options):
        widest = max(width(source[batch], multiple), width(target[batch], multiple))
        assert len(batch) * widest <= max_tokens or len(batch) == 1


def test_batches_are_filled(text_lengths):
    source, target = text_lengths(20_000)
    padded = [
        len(batch) * max(width(source[batch], 4), width(target[batch], 4))
        for batch in plan((source, target), width_multiple=4)
    ]
    assert np.mean(padded) > 0.95 * 3000


def test_a_batch_may_use_the_budget_to_the_last_token():
    lengths = np.full(12, 8)
    assert [len(batch) for batch in plan((lengths, lengths), max_tokens=32)] == [4, 4, 4]


def test_a_pair_longer_than_the_budget_is_a_batch_alone():
    batches = plan((np.array([5, 90, 5, 6]), np.array([5, 5, 99, 6])), max_tokens=32)
    assert sorted(sorted(batch.tolist()) for batch in batches) == [[0, 3], [1], [2]]


@pytest.mark.parametrize("max_tokens", [2000, 4000])
def test_at_most_a_tenth_of_target_tokens_is_padding(text_lengths, max_tokens):
    source, target = text_lengths(18_800)
    batches = plan((source, target), max_tokens=max_tokens)
    padded = sum(len(batch) * width(target[batch], 4) for batch in batches)
    assert 1 - target.sum() / padded <= 0.10


def test_planning_is_fast(text_lengths):
    # Measured 3 ms; a Python loop over the pairs, or quadratic work, would not pass.
    lengths = text_lengths(18_800)
    durations = []
    for epoch in range(3):
        start = time.perf_counter()
        plan(lengths, epoch=epoch)
        durations.append(time.perf_counter() - start)
    assert min(durations) < 0.1


def test_arguments_out_of_range_are_refused(text_lengths, store):
    with pytest.raises(InputError, match="max_tokens"):
        plan(text_lengths(9), max_tokens=0)
    with pytest.raises(InputError, match="width_multiple"):
        plan(text_lengths(9), width_multiple=0)
    with pytest.raises(InputError, match="seed"):
        plan(text_lengths(9), seed=-1)
    with pytest.raises(InputError, match="no pairs"):
        plan((np.zeros(0, np.int32), np.zeros(0, np.int32)))
    with pytest.raises(InputError, match="max_tokens"):
        training_batches(store, max_tokens=0, seed=1)
    with pytest.raises(InputError, match="start_update"):
        training_batches(store, max_tokens=100, seed=1, start_update=-1)


def naive(store, indices, multiple):
    pairs = [tuple(side.tolist() for side in store.pair(i)) for i in indices]
    columns = (
        [source + [END_ID] for source, _ in pairs],
        [[START_ID] + target for _, target in pairs],
        [target + [END_ID] for _, target in pairs],
    )
    padded = []
    for rows in columns:
        longest = max(map(len, rows))
        while longest % multiple:
            longest += 1
        padded.append([row + [PAD_ID] * (longest - len(row)) for row in rows])
    return padded


@pytest.mark.parametrize("multiple", [1, 3, 8])
def test_assemble_equals_a_naive_reference(store, multiple):
    for batch in plan_epoch(
        store.source_lengths, store.target_lengths, max_tokens=300, seed=2, epoch=0
    ):
        (source, target_input), labels = assemble(store, batch, multiple)
        for array, expected in zip(
            (source, target_input, labels), naive(store, batch, multiple), strict=True
        ):
            assert array.dtype == np.int32
            assert array.tolist() == expected


def test_the_label_of_each_position_is_the_next_decoder_input(store):
    (_, target_input), labels = assemble(store, np.arange(20))
    assert (target_input[:, 0] == START_ID).all() and END_ID not in target_input
    ends = labels == END_ID
    assert (ends.sum(axis=1) == 1).all()
    following = np.pad(target_input[:, 1:], ((0, 0), (0, 1)), constant_values=PAD_ID)
    assert np.array_equal(np.where(ends, PAD_ID, labels), following)


def arrays(batch):
    return [np.asarray(array) for array in tf.nest.flatten(batch)]


@pytest.mark.parametrize("offset", ["start", "inside", "last", "boundary", "second", "third"])
def test_a_resumed_stream_goes_on_at_the_exact_batch(store, offset):
    lengths = store.source_lengths, store.target_lengths
    sizes = [len(plan(lengths, max_tokens=400, seed=7, epoch=epoch)) for epoch in range(3)]
    start = {
        "start": 0,
        "inside": 3,
        "last": sizes[0] - 1,
        "boundary": sizes[0],
        "second": sizes[0] + 2,
        "third": sizes[0] + sizes[1] + 1,
    }[offset]
    options = {"max_tokens": 400, "seed": 7}
    whole = training_batches(store, **options).skip(start).take(4)
    resumed = training_batches(store, start_update=start, **options).take(4)
    for expected, batch in zip(whole, resumed, strict=True):
        assert same(arrays(expected), arrays(batch))


def test_the_stream_is_the_plans_of_one_epoch_after_another(store):
    lengths = store.source_lengths, store.target_lengths
    plans = [plan(lengths, max_tokens=400, seed=7, epoch=epoch) for epoch in range(2)]
    expected = [assemble(store, batch) for batches in plans for batch in batches]
    stream = training_batches(store, max_tokens=400, seed=7)
    for batch, reference in zip(islice(stream, len(expected)), expected, strict=True):
        assert same(arrays(batch), arrays(reference))


def test_evaluation_has_every_pair_once_in_a_fixed_order(store):
    dataset = evaluation_batches(store, max_tokens=400)
    batches = list(dataset)
    seen = np.concatenate([source[:, 0] for (source, _), _ in batches]) - 1000
    assert np.array_equal(np.sort(seen), np.arange(len(store)))
    widths = [labels.shape[1] for _, labels in batches]
    assert widths == sorted(widths)
    assert dataset.cardinality() == len(batches)
    for batch, again in zip(batches, dataset, strict=True):
        assert same(arrays(batch), arrays(again))


def test_datasets_declare_their_elements(store):
    ids = tf.TensorSpec((None, None), tf.int32)
    for dataset in (
        training_batches(store, max_tokens=400, seed=1),
        evaluation_batches(store, max_tokens=400),
    ):
        assert dataset.element_spec == ((ids, ids), ids)
