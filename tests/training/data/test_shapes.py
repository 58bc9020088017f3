from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from training.data.shapes import Shape, choose_shapes

lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30)


def sides(pairs):
    return np.array(pairs, np.int32).T


def positions(pairs, widths):
    """Positions of all pairs, each in the first widths that hold it; None if one fits none."""
    total = 0
    for pair in pairs:
        fit = [w for w in widths if w[0] >= pair[0] and w[1] >= pair[1]]
        if not fit:
            return None
        total += sum(fit[0])
    return total


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(1, 3))
def test_no_other_shapes_pad_less(pairs, count):
    cells = [(i, j) for i in range(2, 12, 2) for j in range(2, 12, 2)]
    chains = (
        chain
        for chain in combinations_with_replacement(cells, count)
        if all(a[1] <= b[1] for a, b in zip(chain, chain[1:], strict=False))
    )
    totals = [positions(pairs, chain) for chain in chains]
    shapes = choose_shapes(*sides(pairs), max_tokens=100, count=count)
    assert positions(pairs, [shape[1:] for shape in shapes]) == min(t for t in totals if t)


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(1, 8), st.integers(0, 300), st.integers(0, 300))
def test_shapes_are_few_and_nested_and_the_last_holds_the_longest(pairs, count, source, target):
    shapes = choose_shapes(*sides(pairs), max_tokens=64, longest=(source, target), count=count)
    assert 1 <= len(shapes) <= count
    for shape, wider in zip(shapes, shapes[1:], strict=False):
        assert shape.source_width <= wider.source_width
        assert shape.target_width <= wider.target_width
        assert shape != wider
    longest = np.maximum(sides(pairs).max(axis=1), (source, target))
    assert (np.array(shapes[-1][1:]) >= longest).all()
    # Not wider than the next even number.
    assert (np.array(shapes[-1][1:]) <= longest + 1).all()


def test_rows_use_the_budget_of_the_wider_side():
    (shape,) = choose_shapes(np.array([7, 3]), np.array([10, 4]), max_tokens=64, count=1)
    assert shape == Shape(rows=6, source_width=8, target_width=10)
    (shape,) = choose_shapes(np.array([99]), np.array([4]), max_tokens=64)
    assert shape == Shape(rows=1, source_width=100, target_width=4)


def test_shapes_follow_a_side_that_is_always_shorter(text_lengths):
    source, _ = text_lengths(2000)
    for shape in choose_shapes(source, -(-source // 2), max_tokens=2048):
        assert shape.target_width < 0.7 * shape.source_width


def test_one_very_long_pair_costs_the_others_little(text_lengths):
    source, target = text_lengths(5000)
    shapes = choose_shapes(np.r_[source, 4000], np.r_[target, 4000], max_tokens=2048)
    pairs = list(zip(source.tolist(), target.tolist(), strict=True))
    assert sum(map(sum, pairs)) > 0.75 * positions(pairs, [shape[1:] for shape in shapes])


def test_arguments_out_of_range_are_refused(text_lengths):
    for name in ("max_tokens", "count"):
        with pytest.raises(InputError, match=f"{name} must be at least 1. Received: 0"):
            choose_shapes(*text_lengths(9), **{"max_tokens": 9, name: 0})
    with pytest.raises(InputError, match="no pairs"):
        choose_shapes(np.zeros(0, np.int32), np.zeros(0, np.int32), max_tokens=9)
