"""Which pairs are held out of a corpus for validation and test, decided by their sources."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from kformer.errors import InputError

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class Split:
    """Which pairs are for training and which are held out, by the hash of the source alone.

    A hash is a number below 2**64. Sources with the lowest hashes are for the test, those with the
    highest for validation; so pairs that share a source never part, and two numbers are all there
    is to remember.
    """

    test_to: int
    valid_from: int

    @classmethod
    def of(cls, hashes: np.ndarray, fraction: float = 0.02, limit: int = 2000) -> Self:
        """Holds out a share of a corpus for validation and as much again for the test.

        A pure function of the set of hashes: order and repetition do not matter. While the corpus
        grows with `fraction` in force, a held-out source stays held out and a training source
        stays in training. `fraction` is halved whenever the share would pass `limit`, which moves
        held-out sources to training, never the other way.

        Args:
            hashes: of the sources, uint64 (pairs,).
            fraction: share of the different sources in each held-out part, above 0 and below 0.5.
            limit: at most so many different sources in each held-out part.

        Raises:
            InputError: an argument is out of range or there are fewer than 3 different sources.
        """
        if not 0 < fraction < 0.5:
            raise InputError(f"fraction must be above 0 and below 0.5. Received: {fraction}")
        if limit < 1:
            raise InputError(f"limit must be at least 1. Received: {limit}")
        hashes = np.unique(hashes)
        count = len(hashes)
        if count < 3:
            raise InputError(
                f"cannot hold out validation and test pairs from {count} different sources; "
                f"at least 3 are needed, or give validation and test text"
            )
        while fraction * count > limit:
            fraction /= 2
        share = int(fraction * 2**64)
        in_test = int(np.searchsorted(hashes, np.uint64(share)))
        in_valid = count - int(np.searchsorted(hashes, np.uint64(2**64 - share)))
        # A tiny corpus may have nothing in its share, or too much: one at least, and train the
        # most.
        in_test, in_valid = (min(max(part, 1), (count - 1) // 2) for part in (in_test, in_valid))
        return cls(test_to=int(hashes[in_test - 1]), valid_from=int(hashes[count - in_valid]))

    def select(self, part: Part, hashes: np.ndarray) -> np.ndarray:
        """Which sources, given by their hashes, uint64 (n,), belong to a part; bool (n,)."""
        if part == "test":
            return hashes <= np.uint64(self.test_to)
        if part == "valid":
            return hashes >= np.uint64(self.valid_from)
        return (hashes > np.uint64(self.test_to)) & (hashes < np.uint64(self.valid_from))
