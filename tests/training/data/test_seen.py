import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.data.seen import SeenHashes, text_hash

# Few different hashes, so that many repeat, and both ends of the range.
HASHES = st.lists(st.sampled_from([0, 1, 2, 5, 2**63, 2**64 - 2, 2**64 - 1]) | st.integers(0, 40))


@given(st.lists(HASHES, max_size=12))
def test_only_the_first_of_equal_hashes_is_new(batches):
    seen, reference = SeenHashes(), set()
    for batch in batches:
        expected = []
        for value in batch:
            expected.append(value not in reference)
            reference.add(value)
        assert seen.add(np.array(batch, np.uint64)).tolist() == expected


@given(st.lists(HASHES, max_size=12), HASHES)
def test_holds_what_was_added_and_nothing_else(batches, asked):
    seen = SeenHashes()
    for batch in batches:
        seen.add(np.array(batch, np.uint64))
    added = {value for batch in batches for value in batch}
    held = seen.holds(np.array(asked, np.uint64))
    assert held.tolist() == [value in added for value in asked]


def test_a_million_hashes_take_eight_bytes_each_and_few_arrays():
    seen = SeenHashes()
    values = np.random.default_rng(1).integers(0, 2**64, 1_000_000, np.uint64)
    for batch in np.split(values, 250):
        assert seen.add(batch).all()
    assert sum(run.nbytes for run in seen._runs) == values.nbytes
    assert len(seen._runs) < 20
    assert not seen.add(values[::-7]).any()


def test_a_text_has_the_same_hash_in_every_process():
    code = "from training.data.seen import text_hash; print(text_hash('häuser'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(other.stdout) == text_hash("häuser") != text_hash("häuser ")
