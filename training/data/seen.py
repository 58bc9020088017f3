"""Which of many hashes have been seen before, in eight bytes each."""

import hashlib

import numpy as np


class SeenHashes:
    """A set of 64-bit hashes that grows by many at a time.

    A Python set would take ten times the memory. Hashes lie in sorted arrays, each more than
    twice as long as the next, so there are few and each hash is moved few times.
    """

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds hashes, uint64 (n,); returns which are new, bool (n,): of equals the first."""
        distinct, first = np.unique(hashes, return_index=True)
        fresh = ~self._holds(distinct)
        is_new = np.zeros(len(hashes), bool)
        is_new[first[fresh]] = True
        run = distinct[fresh]
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort()
        if len(run):
            self._runs.append(run)
        return is_new

    def holds(self, hashes: np.ndarray) -> np.ndarray:
        """Which of the hashes, uint64 (n,), were added; bool (n,)."""
        distinct, where = np.unique(hashes, return_inverse=True)
        return self._holds(distinct)[where]

    def _holds(self, distinct: np.ndarray) -> np.ndarray:
        held = np.zeros(len(distinct), bool)
        for run in self._runs:
            places = np.searchsorted(run, distinct)
            places[places == len(run)] = 0
            held |= run[places] == distinct
        return held


def text_hash(text: str) -> int:
    """A hash below 2**64 that is the same in every process, unlike Python's own."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
