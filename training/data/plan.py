"""Which pairs make which batch of an epoch: a pure function of (seed, epoch) and the lengths.

Pairs are ranked by the first shape that holds them, and batches are cut from the ranking. Where
they are cut follows from the number of pairs of each rank alone, so that batches can be counted
without sorting the pairs.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kformer.errors import InputError
from training.data.shapes import WIDTH_MULTIPLE, Shape, fitting

# How far, in positions, pairs of one rank may be off order in an epoch: enough for the batches
# of two epochs to mix differently, too little to pad noticeably more.
_NOISE = 2
# Of a position, so that noise decides between pairs of equal lengths.
_FRACTION_BITS = 24


class Plan:
    """The batches of an epoch: `len(plan)` of them, and `plan[i]` the pairs of batch i.

    The pairs are sorted when the first batch is asked for; `len` costs a tenth of that.

    Args:
        source_lengths, target_lengths: Positions each pair takes, (pairs,).
        ladder: Shapes of batches, each as wide or wider than the one before, on both sides.
        fixed: Whether batches are to be padded to these shapes, or only to their longest pair.
        pairs: Indices of the pairs of this epoch, as often as each is in it; None is all once.
        rng: Mixes pairs and batches; None leaves them in order of length.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        ladder: Sequence[Shape],
        fixed: bool,
        pairs: np.ndarray | None = None,
        rng: np.random.Generator | None = None,
    ):
        self._lengths = source_lengths, target_lengths
        self._fixed = fixed
        self._pairs = pairs
        self._rng = rng
        self._ladder = ladder
        ranks = self._ranks()
        # Batches begin elsewhere each epoch, or those of rare widths would always be the same.
        # Fixed shapes have too few ranks for that, and free rows of theirs would be padding.
        free = 0 if fixed or rng is None else int(rng.integers(ladder[ranks.min()].rows))
        self._borders, self._levels = _cut(ranks, ladder, free)

    def __len__(self) -> int:
        return len(self._levels)

    def __getitem__(self, index: int) -> np.ndarray:
        """Indices of the pairs of batch `index`, int64 (rows,)."""
        order, sequence = self._arranged
        place = sequence[index]
        return order[self._borders[place] : self._borders[place + 1]]

    def shape(self, index: int) -> Shape | None:
        """The shape that batch `index` is to be padded to; None if that of its longest pair."""
        return self._ladder[self._levels[self._arranged[1][index]]] if self._fixed else None

    @cached_property
    def _arranged(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs in the order in which batches are cut from them, and batches in order of use."""
        ranks = self._ranks()
        # Fixed shapes pad all pairs of a rank alike: there none needs to be near another.
        places = np.zeros(1, np.int32) if self._fixed else self._places(ranks)
        count = len(self._lengths[0])
        order = _sorted(ranks, places, self._pairs, count, self._rng)
        batches = np.arange(len(self))
        return order, batches if self._rng is None else self._rng.permutation(batches)

    def _ranks(self) -> np.ndarray:
        """For each pair of the epoch the number of the first shape that holds it, int32."""
        sides = []
        for name, lengths, widths in zip(
            ("source", "target"),
            self._lengths,
            ([s.source_width for s in self._ladder], [s.target_width for s in self._ladder]),
            strict=True,
        ):
            longest = int(lengths.max())
            if longest > widths[-1]:
                raise InputError(
                    f"shapes must hold {longest} {name} positions. Received: at most {widths[-1]}"
                )
            of_length = np.searchsorted(widths, np.arange(longest + 1)).astype(np.int32)
            sides.append(of_length[lengths])
        ranks = np.maximum(*sides, out=sides[0])
        return ranks if self._pairs is None else ranks[self._pairs]

    def _places(self, ranks: np.ndarray) -> np.ndarray:
        """Where in its rank each pair of the epoch stands, int32, not negative.

        One of the two sides is as long as the rank says; the difference of both tells the other.
        It rises in one rank and falls in the next, so that batches across two ranks pad less.
        """
        places = np.subtract(*self._lengths)
        if self._pairs is not None:
            places = places[self._pairs]
        np.negative(places, out=places, where=ranks % 2 == 0)
        places -= places.min()
        return places


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    max_tokens: int,
    seed: int,
    epoch: int,
    corpus_pairs: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
    shapes: Sequence[Shape] | None = None,
) -> Plan:
    """Divide the pairs into the batches of one epoch.

    Pairs of like length are put together, then filled into batches while the padded size
    `rows * max(source width, target width)` stays within `max_tokens`; a pair that is longer
    alone is a batch alone. Pairs are mixed anew and batches come in a new order each epoch.

    Every pair is in exactly one batch, unless there are weights: of a corpus of n pairs with
    weight w, the epoch has round(w * n) pairs (at least one): each pair floor(w) times, and a
    random share of them, drawn for this epoch, once more.

    Args:
        source_lengths, target_lengths: Positions each pair takes, (pairs,), as a store gives them.
        max_tokens: Padded positions of a batch, for one side.
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        corpus_pairs: How many pairs each corpus has; they stand one corpus after another. None
            is one corpus.
        weights: Weight of each corpus. None is 1 for each.
        shapes: The only shapes batches may have, as `choose_shapes` gives them, rows included.
            None pads each batch to its longest pair.

    Raises:
        InputError: If there are no pairs, an argument is out of range, or a pair fits no shape.
    """
    if seed < 0 or epoch < 0:
        raise InputError(f"seed and epoch must not be negative. Received: {seed}, {epoch}")
    rng = np.random.default_rng((seed, epoch))
    pairs = _drawn(len(source_lengths), corpus_pairs, weights, rng)
    ladder = shapes or _all_widths(source_lengths, target_lengths, max_tokens)
    return Plan(source_lengths, target_lengths, ladder, bool(shapes), pairs, rng)


def plan_evaluation(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    max_tokens: int,
    shapes: Sequence[Shape] | None = None,
) -> Plan:
    """Every pair once, in order of length, always the same. Arguments as of `plan_epoch`."""
    ladder = shapes or _all_widths(source_lengths, target_lengths, max_tokens)
    return Plan(source_lengths, target_lengths, ladder, bool(shapes))


def _all_widths(
    source_lengths: np.ndarray, target_lengths: np.ndarray, max_tokens: int
) -> list[Shape]:
    """A shape for every width there may be, narrowest first."""
    if len(source_lengths) == 0:
        raise InputError("no pairs to make batches of")
    if max_tokens < 1:
        raise InputError(f"max_tokens must be at least 1. Received: {max_tokens}")
    longest = int(max(source_lengths.max(), target_lengths.max()))
    widths = range(WIDTH_MULTIPLE, longest + WIDTH_MULTIPLE, WIDTH_MULTIPLE)
    return [fitting(max_tokens, width, width) for width in widths]


def _drawn(
    count: int,
    corpus_pairs: Sequence[int] | None,
    weights: Sequence[float] | None,
    rng: np.random.Generator,
) -> np.ndarray | None:
    """Indices of the pairs of an epoch, as often as each is in it; None is each of them once."""
    sizes = [count] if corpus_pairs is None else list(corpus_pairs)
    weights = [1.0] * len(sizes) if weights is None else list(weights)
    if sum(sizes) != count or min(sizes, default=0) < 0:
        raise InputError(f"corpus_pairs must add up to all {count} pairs. Received: {sizes}")
    if len(weights) != len(sizes) or not all(0 < weight < math.inf for weight in weights):
        raise InputError(
            f"weights must be positive, one for each of {len(sizes)} corpora. Received: {weights}"
        )
    if all(weight == 1 for weight in weights):
        return None
    drawn, first = [], 0
    for size, weight in zip(sizes, weights, strict=True):
        corpus = np.arange(first, first + size, dtype=np.uint32)
        copies = math.floor(weight)
        more = max(round(weight * size), min(size, 1)) - copies * size
        drawn += [corpus] * copies
        drawn.append(rng.choice(corpus, more, replace=False, shuffle=False))
        first += size
    return np.concatenate(drawn)


def _cut(ranks: np.ndarray, ladder: Sequence[Shape], free: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the pairs, in order of rank, into batches: their borders, and the rank of each.

    What is left of one rank goes into the first batch of the next, unless it would fill it: then
    it is a batch of fewer rows. Of the very first batch, `free` rows are not used.
    """
    first = int(ranks.min())
    counts = np.bincount(ranks, minlength=len(ladder)).tolist()
    # After the widest shape there is no other: what is left, if only one pair, is a batch.
    rows = [shape.rows for shape in ladder] + [1]
    sizes, levels, left = [[-free]], [], free
    for level in range(first, len(ladder)):
        full, left = divmod(left + counts[level], rows[level])
        sizes.append(np.full(full, rows[level]))
        if left >= rows[level + 1]:
            sizes.append([left])
            full, left = full + 1, 0
        levels.append(np.full(full, level))
    borders = np.cumsum(np.concatenate(sizes))
    borders[0] = 0
    return borders, np.concatenate(levels)


def _sorted(
    ranks: np.ndarray,
    places: np.ndarray,
    pairs: np.ndarray | None,
    count: int,
    rng: np.random.Generator | None,
) -> np.ndarray:
    """Pairs in order of rank, then place plus noise, then index: their indices, int64.

    All are packed into one number and the numbers sorted: many times faster than `lexsort`, and
    as the index is in the number, every sorting algorithm gives the same order.
    """
    index_bits = (count - 1).bit_length()
    place_bits = (int(places.max()) + _NOISE).bit_length()
    spare_bits = 64 - int(ranks.max()).bit_length() - place_bits - index_bits
    if spare_bits < 0:
        raise InputError(f"max_length is too long to sort {count} pairs. Received: {places.max()}")
    fraction_bits = min(spare_bits, _FRACTION_BITS)
    keys = ranks.astype(np.uint64)
    keys <<= place_bits
    keys += places.astype(np.uint64)
    keys <<= fraction_bits
    if rng is not None:
        keys += rng.integers(_NOISE << fraction_bits, size=len(keys), dtype=np.uint32)
    keys <<= index_bits
    keys |= np.arange(count, dtype=np.uint32) if pairs is None else pairs
    keys.sort()
    keys &= (1 << index_bits) - 1
    return keys.view(np.int64)
