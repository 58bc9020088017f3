import subprocess
import sys

import numpy as np
import pytest

from kformer.errors import InputError
from training.data.cleaning import source_hash
from training.data.splits import PARTS, Split


def hashes(count):
    return np.array([source_hash(f"source {i}") for i in range(count)], np.uint64)


def parts(hashes, **options):
    split = Split.of(hashes, **options)
    return {part: set(hashes[split.select(part, hashes)].tolist()) for part in PARTS}


def test_parts_are_disjoint_whole_and_of_about_the_fraction_asked():
    found = parts(hashes(10_000), fraction=0.02)
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == 10_000
    assert 140 < len(found["valid"]) < 260 and 140 < len(found["test"]) < 260


def test_split_is_stable_while_the_corpus_grows():
    small, large = parts(hashes(3000)), parts(hashes(9000))
    for part in PARTS:
        assert small[part] <= large[part]


def test_split_ignores_order_and_repetition():
    own = hashes(2000)
    assert Split.of(own) == Split.of(np.concatenate([own[::-1], own[:700]]))


def test_limit_bounds_the_held_out_parts_and_only_gives_back_to_training():
    free, bounded = parts(hashes(10_000)), parts(hashes(10_000), limit=120)
    for part in ("valid", "test"):
        assert 0 < len(bounded[part]) <= 120
        assert bounded[part] < free[part]


@pytest.mark.parametrize("count", [3, 4, 5, 10, 40])
@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.49])
def test_tiny_corpus_has_at_least_one_pair_in_each_part(count, fraction):
    assert all(parts(hashes(count), fraction=fraction).values())


@pytest.mark.parametrize("own", [[], [5], [5, 5, 7]])
def test_too_few_different_sources_to_split_are_refused(own):
    with pytest.raises(InputError, match="at least 3"):
        Split.of(np.array(own, np.uint64))


def test_split_is_the_same_in_every_process():
    code = (
        "import numpy as np\n"
        "from training.data.cleaning import source_hash\n"
        "from training.data.splits import Split\n"
        "own = np.array([source_hash(f'source {i}') for i in range(400)], np.uint64)\n"
        "print(Split.of(own))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert other.stdout.strip() == str(Split.of(hashes(400)))


@pytest.mark.parametrize("options", [{"fraction": 0.0}, {"fraction": 0.5}, {"limit": 0}])
def test_arguments_out_of_range_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        Split.of(hashes(9), **options)
