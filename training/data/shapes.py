"""A few fixed shapes of batches, so that XLA compiles a few programs and no more."""

from typing import NamedTuple

import numpy as np

from kformer.errors import InputError

# Of real text in batches of 2,048 tokens 7% are then padding; with 1 it would be 4.5%, in twice as
# many widths, and with 4 it would be 11%.
WIDTH_MULTIPLE = 2

# Widths tried on each side: every one up to about 40, then each some percent more than the last.
_CANDIDATES = 100


class Shape(NamedTuple):
    """Size of a batch: `rows` pairs, of `source_width` and `target_width` positions."""

    rows: int
    source_width: int
    target_width: int


def fitting(max_tokens: int, source_width: int, target_width: int) -> Shape:
    """The shape of these widths with the rows that `max_tokens` positions a side allow."""
    rows = max(1, max_tokens // max(source_width, target_width))
    return Shape(int(rows), int(source_width), int(target_width))


def round_up(lengths: np.ndarray) -> np.ndarray:
    """Lengths as widths: multiples of `WIDTH_MULTIPLE`."""
    return -(-lengths // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


def choose_shapes(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    max_tokens: int,
    longest: tuple[int, int] = (0, 0),
    count: int = 8,
) -> tuple[Shape, ...]:
    """The shapes that pad these pairs least, if each pair takes the first that holds it.

    Each shape holds all that the one before it holds, on both sides. The search is exact over the
    widths tried (dynamic programming over the joint histogram).

    Args:
        source_lengths, target_lengths: Positions each pair takes, (pairs,), as a store gives them.
        max_tokens: Padded positions of a batch, for one side; sets the rows of each shape.
        longest: Source and target positions the widest shape must hold, if more than these pairs
            take: for pairs of the validation, or of epochs whose lengths differ.
        count: Most shapes wanted.

    Returns:
        At most `count` shapes, narrowest first.

    Raises:
        InputError: If there are no pairs, or an argument is out of range.
    """
    if len(source_lengths) == 0:
        raise InputError("no pairs to choose shapes for")
    for name, value in (("max_tokens", max_tokens), ("count", count)):
        if value < 1:
            raise InputError(f"{name} must be at least 1. Received: {value}")
    source_widths = _candidates(max(longest[0], int(source_lengths.max())))
    target_widths = _candidates(max(longest[1], int(target_lengths.max())))
    # held[i, j]: how many pairs fit into source_widths[i] and target_widths[j].
    cells = np.searchsorted(source_widths, source_lengths) * len(target_widths)
    cells += np.searchsorted(target_widths, target_lengths)
    grid = len(source_widths), len(target_widths)
    held = np.bincount(cells, minlength=grid[0] * grid[1]).reshape(grid).cumsum(0).cumsum(1)
    size = source_widths[:, None] + target_widths
    # padded[i, j]: least positions for the pairs in held[i, j], that shape being the widest.
    padded = size * held
    steps = []
    for _ in range(count - 1):
        padded, before = _one_more_shape(padded, held, size)
        steps.append(before)
    i, j = grid[0] - 1, grid[1] - 1
    chain = {(i, j)}
    for before in reversed(steps):
        i, j = divmod(int(before[i, j]), grid[1])
        chain.add((i, j))
    # Width 0 stands for "no shape": fewer than `count` were enough.
    return tuple(
        fitting(max_tokens, source_widths[i], target_widths[j]) for i, j in sorted(chain) if i and j
    )


def _candidates(longest: int) -> np.ndarray:
    """Widths to choose from, and 0: each by a like factor more than the one before."""
    return np.unique(np.r_[0, round_up(np.geomspace(1, longest, _CANDIDATES).round().astype(int))])


def _one_more_shape(
    padded: np.ndarray, held: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`padded` with one shape more allowed, and the cell of the shape before each, (I, J)."""
    best, before = np.empty_like(padded), np.empty_like(padded)
    for i, j in np.ndindex(padded.shape):
        totals = padded[: i + 1, : j + 1] - size[i, j] * held[: i + 1, : j + 1]
        row, column = divmod(int(totals.argmin()), j + 1)
        best[i, j] = totals[row, column] + size[i, j] * held[i, j]
        before[i, j] = row * padded.shape[1] + column
    return best, before
