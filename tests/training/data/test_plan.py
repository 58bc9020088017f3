import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

import training
from kformer.errors import InputError
from kformer.text import SentencePieceTokenizer
from training.data.plan import plan_epoch, plan_evaluation
from training.data.shapes import choose_shapes

sides = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60).map(
    lambda pairs: tuple(np.array(pairs, np.int32).T)
)


def even(length):
    return int(length + length % 2)


def plan(lengths, *, max_tokens=3000, seed=1, epoch=0, **options):
    return plan_epoch(*lengths, max_tokens=max_tokens, seed=seed, epoch=epoch, **options)


def batches(plan):
    return [plan[i] for i in range(len(plan))]


def same(one, other):
    return len(one) == len(other) and all(map(np.array_equal, batches(one), batches(other)))


def pairs_of(plan):
    return np.sort(np.concatenate(batches(plan)))


def padding(lengths, plan):
    """Shares of the positions of all batches that are padding: source, target, both."""
    lengths = np.array(lengths)
    tokens, positions = np.zeros(2), np.zeros(2)
    for i in range(len(plan)):
        pairs = lengths[:, plan[i]]
        shape = plan.shape(i) or (len(plan[i]), *map(even, pairs.max(axis=1)))
        tokens += pairs.sum(axis=1)
        positions += np.multiply(shape[0], shape[1:])
    return *(1 - tokens / positions), 1 - tokens.sum() / positions.sum()


@pytest.fixture(scope="module")
def embedded_lengths():
    path = Path(training.__file__).parent / "corpora/libreoffice-help.en-de/train.tsv"
    pairs = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    tokenizer = SentencePieceTokenizer.learn((text for pair in pairs for text in pair), 4000)
    sides = [tokenizer.tokenize(tf.constant(side)) for side in zip(*pairs, strict=True)]
    lengths = np.array([side.row_lengths() for side in sides], np.int32)
    return lengths[:, (lengths.min(axis=0) > 0) & (lengths.max(axis=0) <= 100)] + 1


def test_every_pair_is_in_exactly_one_batch(text_lengths):
    for count in (1, 2, 1000):
        assert np.array_equal(pairs_of(plan(text_lengths(count))), np.arange(count))


def test_a_plan_is_a_pure_function_of_seed_and_epoch(text_lengths):
    lengths = text_lengths(2000)
    for options in (
        {},
        {"corpus_pairs": [500, 1500], "weights": [0.5, 1.3]},
        {"shapes": choose_shapes(*lengths, max_tokens=3000)},
    ):
        first = plan(lengths, seed=3, epoch=2, **options)
        np.random.seed(0)
        again = plan(lengths, seed=3, epoch=2, **options)
        again[len(again) - 1]  # In which order batches are asked for plays no part.
        assert same(first, again)
        assert not same(first, plan(lengths, seed=4, epoch=2, **options))
        assert not same(first, plan(lengths, seed=3, epoch=3, **options))
    assert not same(plan(lengths, seed=0, epoch=1), plan(lengths, seed=1, epoch=0))


@pytest.mark.parametrize("fixed", [False, True])
def test_epochs_mix_pairs_into_different_batches(text_lengths, fixed):
    lengths = text_lengths(5000)
    shapes = choose_shapes(*lengths, max_tokens=3000) if fixed else None
    first, second = (
        {frozenset(batch.tolist()) for batch in batches(plan(lengths, epoch=e, shapes=shapes))}
        for e in (0, 1)
    )
    assert len(first & second) <= 0.1 * len(first)


def test_pairs_of_equal_lengths_are_mixed():
    lengths = np.full((2, 1000), 10)
    for batch in batches(plan(lengths, max_tokens=1000)):
        # 100 of 1000 in order of the corpus would have neighbours a step apart.
        assert np.diff(np.sort(batch)).max() > 10


def test_batches_do_not_come_in_order_of_length(text_lengths):
    lengths = text_lengths(5000)
    for shapes in (None, choose_shapes(*lengths, max_tokens=3000)):
        means = [lengths[1][batch].mean() for batch in batches(plan(lengths, shapes=shapes))]
        assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


@settings(max_examples=60, deadline=None)
@given(sides, st.integers(1, 200))
def test_padded_size_stays_within_the_budget(lengths, max_tokens):
    epoch = plan(lengths, max_tokens=max_tokens)
    assert np.array_equal(pairs_of(epoch), np.arange(len(lengths[0])))
    for batch in batches(epoch):
        widest = max(even(side[batch].max()) for side in lengths)
        assert len(batch) * widest <= max_tokens or len(batch) == 1


@settings(max_examples=60, deadline=None)
@given(sides, st.integers(1, 200))
def test_batches_are_filled_one_pair_after_another(lengths, max_tokens):
    sizes, widths = [], sorted(even(max(pair)) for pair in zip(*lengths, strict=True))
    for width in widths:
        if sizes and (sizes[-1] + 1) * width <= max_tokens:
            sizes[-1] += 1
        else:
            sizes.append(1)
    found = batches(plan_evaluation(*lengths, max_tokens=max_tokens))
    assert [len(batch) for batch in found] == sizes
    # In training the first batch may have fewer rows, which makes one batch more at most.
    assert len(sizes) <= len(plan(lengths, max_tokens=max_tokens)) <= len(sizes) + 1


def test_a_batch_may_use_the_budget_to_the_last_token():
    lengths = np.full((2, 12), 8)
    found = plan_evaluation(*lengths, max_tokens=32)
    assert [len(batch) for batch in batches(found)] == [4, 4, 4]


def test_a_pair_longer_than_the_budget_is_a_batch_alone():
    lengths = np.array([[5, 90, 5, 6], [5, 5, 99, 6]])
    epoch = plan_evaluation(*lengths, max_tokens=32)
    assert sorted(sorted(batch.tolist()) for batch in batches(epoch)) == [[0, 3], [1], [2]]


# With 25,000 tokens an epoch is 18 batches: too few for all pairs of one to be of like length.
# Were a batch any square of the plane of both lengths, about 0.15 would still be padding.
@pytest.mark.parametrize(("max_tokens", "most"), [(2048, 0.10), (4096, 0.10), (25_000, 0.16)])
def test_little_of_real_text_is_padding(embedded_lengths, max_tokens, most):
    for epoch in range(2):
        lengths = embedded_lengths
        assert padding(lengths, plan(lengths, max_tokens=max_tokens, epoch=epoch))[2] <= most


@pytest.mark.parametrize(("max_tokens", "most"), [(4096, 0.078), (25_000, 0.11)])
def test_little_of_a_larger_corpus_is_padding_on_either_side(text_lengths, max_tokens, most):
    lengths = text_lengths(200_000)
    assert max(padding(lengths, plan(lengths, max_tokens=max_tokens))) <= most


def test_batches_of_training_are_full(text_lengths):
    lengths = text_lengths(20_000)
    sizes = [
        len(batch) * max(even(side[batch].max()) for side in lengths)
        for batch in batches(plan(lengths))
    ]
    assert np.mean(sizes) > 0.95 * 3000


@pytest.mark.parametrize(("max_tokens", "most"), [(2048, 0.18), (4096, 0.19), (25_000, 0.24)])
def test_eight_fixed_shapes_pad_real_text_by_less_than_a_quarter(
    embedded_lengths, max_tokens, most
):
    shapes = choose_shapes(*embedded_lengths, max_tokens=max_tokens, longest=(101, 101))
    epoch = plan(embedded_lengths, max_tokens=max_tokens, shapes=shapes)
    assert padding(embedded_lengths, epoch)[2] <= most


def test_planning_millions_of_pairs_is_fast_and_small(text_lengths):
    # Measured 0.15 s and 24 bytes a pair; a Python loop over the pairs or batches, or arrays of
    # several numbers a pair, would not pass.
    lengths = text_lengths(1_000_000)
    durations = []
    for epoch in range(2):
        start = time.perf_counter()
        plan(lengths, epoch=epoch)[0]
        durations.append(time.perf_counter() - start)
    assert min(durations) < 0.8
    tracemalloc.start()
    plan(lengths)[0]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 * 1_000_000


weighted = st.lists(
    st.tuples(
        st.integers(0, 12), st.one_of(st.floats(0.01, 4), st.sampled_from([0.5, 1.0, 2.0, 2.5]))
    ),
    min_size=1,
    max_size=4,
).filter(lambda corpora: sum(pairs for pairs, _ in corpora) > 0)


@settings(max_examples=100, deadline=None)
@given(weighted, st.integers(0, 3), st.booleans())
@example([(1, 0.01), (0, 2.0), (10, 1.1), (10, 2.9999999)], 0, False)
def test_an_epoch_has_each_corpus_as_often_as_its_weight_says(corpora, epoch, fixed):
    corpus_pairs, weights = zip(*corpora, strict=True)
    count = sum(corpus_pairs)
    lengths = np.random.default_rng(count).integers(1, 40, (2, count))
    found = plan(
        lengths,
        max_tokens=100,
        epoch=epoch,
        corpus_pairs=corpus_pairs,
        weights=weights,
        shapes=choose_shapes(*lengths, max_tokens=100) if fixed else None,
    )
    times = np.bincount(pairs_of(found), minlength=count)
    first = 0
    for pairs, weight in corpora:
        corpus, first = times[first : first + pairs], first + pairs
        expected = max(1, round(weight * pairs)) if pairs else 0
        assert corpus.sum() == expected
        assert all(int(weight) <= seen <= int(weight) + 1 for seen in corpus)


def test_the_share_of_a_corpus_is_drawn_anew_each_epoch(text_lengths):
    lengths = text_lengths(1000)
    options = {"corpus_pairs": [600, 400], "weights": [1, 0.5]}
    drawn = [pairs_of(plan(lengths, epoch=epoch, **options))[600:] for epoch in range(8)]
    assert not np.array_equal(drawn[0], drawn[1])
    # Each pair has missed all eight with a chance of 1 in 256.
    assert len(np.unique(np.concatenate(drawn))) > 380


def test_weights_of_one_change_nothing(text_lengths):
    lengths = text_lengths(1000)
    weighted = plan(lengths, corpus_pairs=[300, 0, 700], weights=[1, 1, 1.0])
    assert same(plan(lengths), weighted)
    assert same(plan(lengths), plan(lengths, corpus_pairs=[300, 700]))


@settings(max_examples=60, deadline=None)
@given(sides, st.integers(1, 200), st.integers(1, 8), st.booleans())
def test_fixed_shapes_hold_every_pair_once_and_are_few(lengths, max_tokens, count, mixed):
    shapes = choose_shapes(*lengths, max_tokens=max_tokens, count=count)
    if mixed:
        found = plan(lengths, max_tokens=max_tokens, shapes=shapes)
    else:
        found = plan_evaluation(*lengths, max_tokens=max_tokens, shapes=shapes)
    assert np.array_equal(pairs_of(found), np.arange(len(lengths[0])))
    used = set()
    for i, batch in enumerate(batches(found)):
        shape = found.shape(i)
        used.add(shape)
        assert 1 <= len(batch) <= shape.rows
        assert lengths[0][batch].max() <= shape.source_width
        assert lengths[1][batch].max() <= shape.target_width
    assert used <= set(shapes) and len(used) <= count


def test_rows_of_fixed_shapes_are_filled_from_the_shape_before():
    # 2 pairs are left of 10 positions, and 4 rows of 20 have room for them.
    lengths = np.repeat([[10, 20]] * 2, [10, 5], axis=1)
    shapes = choose_shapes(*lengths, max_tokens=80, count=2)
    found = plan_evaluation(*lengths, max_tokens=80, shapes=shapes)
    assert [batch.tolist() for batch in batches(found)] == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [8, 9, 10, 11],
        [12, 13, 14],
    ]


def test_arguments_out_of_range_are_refused(text_lengths):
    lengths = text_lengths(9)
    for pattern, options in (
        ("max_tokens must be at least 1. Received: 0", {"max_tokens": 0}),
        ("seed and epoch must not be negative. Received: -1, 0", {"seed": -1}),
        (r"corpus_pairs must add up to all 9 pairs. Received: \[4, 4\]", {"corpus_pairs": [4, 4]}),
        ("corpus_pairs must add up", {"corpus_pairs": [10, -1]}),
        (r"weights must be positive.* 1 corpora. Received: \[1, 2\]", {"weights": [1, 2]}),
        (r"weights must be positive.* Received: \[0\]", {"weights": [0]}),
        ("weights must be positive", {"weights": [float("nan")]}),
        ("weights must be positive", {"weights": [float("inf")]}),
    ):
        with pytest.raises(InputError, match=pattern):
            plan(lengths, **options)
    with pytest.raises(InputError, match="no pairs"):
        plan((np.zeros(0, np.int32), np.zeros(0, np.int32)))
    shapes = choose_shapes(*lengths, max_tokens=3000)
    longer = lengths[0], lengths[1] + 90
    with pytest.raises(InputError, match=r"shapes must hold \d+ target positions. Received: at"):
        plan(longer, shapes=shapes)
