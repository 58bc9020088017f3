"""Batches of a token store: a batch is a pure function of (seed, epoch, index).

An epoch is planned from the lengths alone, before any token is read. A run therefore resumes at
the exact batch, and several workers that compute the same plan can take disjoint shares of it.
"""

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID
from training.data.store import TokenStore

# With 8, sentences of 16 tokens would be padded by a sixth; with 4, by a twelfth.
WIDTH_MULTIPLE = 4

Batch = tuple[tuple[np.ndarray, np.ndarray], np.ndarray]

# How far, in positions, source lengths may be off order in an epoch: enough for the batches of
# two epochs to mix differently, too little to pad noticeably more.
_NOISE = 2.0

_IDS = tf.TensorSpec((None, None), tf.int32)
_SPEC = ((_IDS, _IDS), _IDS)


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    max_tokens: int,
    seed: int,
    epoch: int,
    width_multiple: int = WIDTH_MULTIPLE,
) -> list[np.ndarray]:
    """Divide the pairs into the batches of one epoch, every pair in exactly one.

    Pairs of like length are put together, then filled into batches while the padded size
    `rows * max(source width, target width)` stays within `max_tokens`; a pair that is longer
    alone is a batch alone. Widths are the longest length rounded up to `width_multiple`, so that
    few shapes occur. Pairs are mixed anew and batches come in a new order each epoch.

    Args:
        source_lengths, target_lengths: Positions each pair takes, (pairs,), as a store gives them.
        max_tokens: Padded positions of a batch, for one side.
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        width_multiple: Widths are multiples of this.

    Returns:
        For each batch the indices of its pairs, int64 (rows,).

    Raises:
        InputError: If there are no pairs, or an argument is out of range.
    """
    if seed < 0 or epoch < 0:
        raise InputError(f"seed and epoch must not be negative. Received: {seed}, {epoch}")
    rng = np.random.default_rng((seed, epoch))
    noise = rng.uniform(0.0, _NOISE, len(source_lengths))
    plan = _plan(source_lengths, target_lengths, noise, max_tokens, width_multiple)
    return [plan[i] for i in rng.permutation(len(plan))]


def _plan(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    noise: np.ndarray | float,
    max_tokens: int,
    width_multiple: int,
) -> list[np.ndarray]:
    """Batches in order of length, shortest targets first."""
    if len(source_lengths) == 0:
        raise InputError("no pairs to make batches of")
    for name, value in (("max_tokens", max_tokens), ("width_multiple", width_multiple)):
        if value < 1:
            raise InputError(f"{name} must be at least 1. Received: {value}")
    source_widths = _round_up(source_lengths, width_multiple)
    target_widths = _round_up(target_lengths, width_multiple)
    # Targets of one width pad alike, so within it sources are in order. They rise in one width
    # and fall in the next: a batch that spans two widths then has sources of like length.
    rising = np.where(target_widths // width_multiple % 2, 1, -1)
    order = np.lexsort((rising * (source_lengths + noise), target_widths))
    widths = np.maximum(source_widths, target_widths)[order]
    plan, start = [], 0
    while start < len(order):
        # No more rows than this can fit, as the width only grows with further rows.
        window = widths[start : start + max(1, max_tokens // int(widths[start]))]
        sizes = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        rows = max(1, int(np.searchsorted(sizes, max_tokens, side="right")))
        plan.append(order[start : start + rows])
        start += rows
    return plan


def _round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    return -(-lengths // multiple) * multiple


def assemble(store: TokenStore, indices: np.ndarray, width_multiple: int = WIDTH_MULTIPLE) -> Batch:
    """Gather pairs into padded arrays, a row a pair.

    Returns:
        `((source_ids, target_input_ids), labels)`, int32. `source_ids` (rows, source width) are
        the source tokens and END; `target_input_ids` (rows, target width) are START and the
        target tokens; `labels` (rows, target width) are the target tokens and END. The rest is
        PAD; widths are multiples of `width_multiple`.
    """
    source, source_lengths = _gather(
        store.source_tokens, store.source_offsets, indices, width_multiple
    )
    labels, target_lengths = _gather(
        store.target_tokens, store.target_offsets, indices, width_multiple
    )
    # The last column is still padding, as the width has room for one more than the tokens.
    target_input = np.roll(labels, 1, axis=1)
    target_input[:, 0] = START_ID
    rows = np.arange(len(indices))
    source[rows, source_lengths] = END_ID
    labels[rows, target_lengths] = END_ID
    return (source, target_input), labels


def _gather(
    tokens: np.ndarray, offsets: np.ndarray, indices: np.ndarray, multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens padded to int32 (rows, width) with room for one more, and how many (rows,)."""
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    ids = np.full((len(indices), _round_up(lengths.max() + 1, multiple)), PAD_ID, np.int32)
    # Row by row, the place of each token in the flat array: its row's start, then one by one.
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = tokens[places]
    return ids, lengths


def training_batches(
    store: TokenStore,
    *,
    max_tokens: int,
    seed: int,
    start_update: int = 0,
    width_multiple: int = WIDTH_MULTIPLE,
) -> tf.data.Dataset:
    """The endless stream of batches of epochs 0, 1, 2, ..., from batch `start_update` on.

    Made for `model.fit(..., steps_per_epoch=N)`. Iterating again starts at `start_update` again.

    Args:
        store: The pairs.
        max_tokens, seed, width_multiple: See `plan_epoch`.
        start_update: How many batches of the stream were used before.

    Returns:
        A dataset of batches as `assemble` makes them, int32.

    Raises:
        InputError: If an argument is out of range.
    """
    if start_update < 0:
        raise InputError(f"start_update must not be negative. Received: {start_update}")

    def plan(epoch: int) -> list[np.ndarray]:
        return plan_epoch(
            store.source_lengths,
            store.target_lengths,
            max_tokens=max_tokens,
            seed=seed,
            epoch=epoch,
            width_multiple=width_multiple,
        )

    plan(0)  # A wrong argument is told here, not from inside the pipeline.

    def batches() -> Iterator[Batch]:
        skip = start_update
        for epoch in count():
            batch_indices = plan(epoch)
            for indices in batch_indices[skip:]:
                yield assemble(store, indices, width_multiple)
            skip = max(0, skip - len(batch_indices))

    return _dataset(batches)


def evaluation_batches(
    store: TokenStore, *, max_tokens: int, width_multiple: int = WIDTH_MULTIPLE
) -> tf.data.Dataset:
    """Every pair once, in order of length, the same each time; its cardinality is known.

    Args:
        store: The pairs.
        max_tokens, width_multiple: See `plan_epoch`.

    Raises:
        InputError: If an argument is out of range.
    """
    plan = _plan(store.source_lengths, store.target_lengths, 0.0, max_tokens, width_multiple)

    def batches() -> Iterator[Batch]:
        return (assemble(store, indices, width_multiple) for indices in plan)

    return _dataset(batches).apply(tf.data.experimental.assert_cardinality(len(plan)))


def _dataset(batches: Callable[[], Iterator[Batch]]) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_generator(batches, output_signature=_SPEC)
    return dataset.prefetch(tf.data.AUTOTUNE)
