"""Batches of a token store: a batch is a pure function of (seed, epoch, index).

An epoch is planned from the lengths alone, before any token is read. A run therefore resumes at
the exact batch, and several workers that compute the same plan can take disjoint shares of it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID
from training.data.plan import Plan, plan_epoch, plan_evaluation
from training.data.shapes import Shape, round_up
from training.data.store import TokenStore

Batch = tuple[tuple[np.ndarray, np.ndarray], np.ndarray]


class Shares(NamedTuple):
    """Which shares of each batch are meant: `own` of `count`. Devices are given one each."""

    count: int = 1
    own: tuple[int, ...] = (0,)


WHOLE = Shares()

_IDS = tf.TensorSpec((None, None), tf.int32)
_SPEC = ((_IDS, _IDS), _IDS)


class TrainingBatches:
    """The endless stream of batches of epochs 0, 1, 2, ...

    Args:
        store: The pairs. Epoch e is of the tokens of `store.epoch(e)`, as many pairs in the same
            order each time.
        max_tokens, seed, corpus_pairs, weights, shapes: See `plan_epoch`. For epochs whose
            lengths differ, shapes must hold the longest that may come: `choose_shapes(longest=)`.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        max_tokens: int,
        seed: int,
        corpus_pairs: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        shapes: Sequence[Shape] | None = None,
    ):
        self.store = store
        self._arguments = {
            "max_tokens": max_tokens,
            "seed": seed,
            "corpus_pairs": corpus_pairs,
            "weights": weights,
            "shapes": shapes,
        }
        # How many batches the epochs have that are known so far.
        self._lengths: list[int] = []

    def dataset(self, start: int = 0, shares: Shares = WHOLE) -> tf.data.Dataset:
        """The batches as `assemble` makes them, int32, for `fit(..., steps_per_epoch=N)`.

        Args:
            start: How many batches of the stream were used before. Iterating again starts there
                again.
            shares: Which shares of each batch to give, one after another; by default all of it.

        Raises:
            InputError: If an argument, or one of the constructor's, is out of range.
        """
        if start < 0:
            raise InputError(f"start must not be negative. Received: {start}")
        first = 0
        # The tokens of an epoch that is over need not be made again to be counted.
        while first < len(self._lengths) and self._lengths[first] <= start:
            start -= self._lengths[first]
            first += 1
        # Here, so that a wrong argument is not told from inside the pipeline.
        self._plan(self.store.epoch(first), first)

        def batches() -> Iterator[Batch]:
            skip = start
            for epoch in count(first):
                pairs = self.store.epoch(epoch)
                plan = self._plan(pairs, epoch)
                yield from _assembled(pairs, plan, shares, skip)
                skip = max(0, skip - len(plan))

        return _dataset(batches)

    def state(self) -> dict[str, list[int]]:
        """What `restore` needs to begin anywhere at once."""
        return {"epochs": list(self._lengths)}

    def restore(self, state: dict[str, list[int]]) -> None:
        """Goes on from what `state` gave."""
        self._lengths = list(state["epochs"])

    def _plan(self, pairs: TokenStore, epoch: int) -> Plan:
        plan = plan_epoch(
            pairs.source_lengths, pairs.target_lengths, epoch=epoch, **self._arguments
        )
        if epoch == len(self._lengths):
            self._lengths.append(len(plan))
        return plan


def evaluation_batches(
    store: TokenStore,
    *,
    max_tokens: int,
    shapes: Sequence[Shape] | None = None,
    shares: Shares = WHOLE,
) -> tf.data.Dataset:
    """Every pair once, in order of length, the same each time; its cardinality is known.

    Args:
        store: The pairs.
        max_tokens, shapes: See `plan_epoch`. With the shapes of the training, all batches of a
            run are of these shapes: choose them to hold the longest of these pairs too.
        shares: See `TrainingBatches.dataset`.

    Raises:
        InputError: If an argument is out of range, or a pair fits no shape.
    """
    plan = plan_evaluation(
        store.source_lengths, store.target_lengths, max_tokens=max_tokens, shapes=shapes
    )
    dataset = _dataset(lambda: _assembled(store, plan, shares))
    elements = len(plan) * len(shares.own)
    return dataset.apply(tf.data.experimental.assert_cardinality(elements))


def assemble(store: TokenStore, indices: np.ndarray, shape: Shape | None = None) -> Batch:
    """Gather pairs into padded arrays, a row a pair.

    Args:
        store: The pairs.
        indices: Which of them, (rows,); none give a row of padding.
        shape: What to pad to; rows beyond the pairs are all padding. None has a row for each
            pair, and widths are the longest lengths rounded up to `WIDTH_MULTIPLE`.

    Returns:
        `((source_ids, target_input_ids), labels)`, int32. `source_ids` (rows, source width) are
        the source tokens and END; `target_input_ids` (rows, target width) are START and the
        target tokens; `labels` (rows, target width) are the target tokens and END. The rest is
        PAD.
    """
    rows, source_width, target_width = shape or (max(len(indices), 1), None, None)
    source, source_lengths = _gather(
        store.source_tokens, store.source_offsets, indices, rows, source_width
    )
    labels, target_lengths = _gather(
        store.target_tokens, store.target_offsets, indices, rows, target_width
    )
    pairs = np.arange(len(indices))
    # The last column is still padding, as the width has room for one more than the tokens.
    target_input = np.roll(labels, 1, axis=1)
    target_input[pairs, 0] = START_ID
    source[pairs, source_lengths] = END_ID
    labels[pairs, target_lengths] = END_ID
    return (source, target_input), labels


def _gather(
    tokens: np.ndarray, offsets: np.ndarray, indices: np.ndarray, rows: int, width: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens padded to int32 (rows, width) with room for one more, and how many (pairs,)."""
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    ids = np.full((rows, width or round_up(lengths.max(initial=0) + 1)), PAD_ID, np.int32)
    # Row by row, the place of each token in the flat array: its row's start, then one by one.
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    filled = ids[: len(indices)]
    filled[np.arange(ids.shape[1]) < lengths[:, None]] = tokens[places]
    return ids, lengths


def _assembled(store: TokenStore, plan: Plan, shares: Shares, skip: int = 0) -> Iterator[Batch]:
    for i in range(skip, len(plan)):
        shape = plan.shape(i)
        if shape is not None:
            shape = shape._replace(rows=-(-shape.rows // shares.count))
        for number in shares.own:
            # Every count-th pair, so that all shares are of like lengths.
            yield assemble(store, plan[i][number :: shares.count], shape)


def _dataset(batches: Callable[[], Iterator[Batch]]) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_generator(batches, output_signature=_SPEC)
    return dataset.prefetch(tf.data.AUTOTUNE)
