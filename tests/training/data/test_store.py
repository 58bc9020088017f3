import json
import signal
import subprocess
import sys
import textwrap
from functools import partial

import numpy as np
import pytest

from kformer.errors import InputError
from kformer.subwords.learn import learn
from training.data.encoding import load_encoders
from training.data.report import Dropped, Example, Report
from training.data.rows import Pair
from training.data.store import TokenStore
from training.data.tokenising import build_store

ENGLISH = ["A house by the sea.", "Trees grow slowly here.", "What does a seal eat?",
           "The house is old and grey.", "Slowly, the sea eats the land."]  # fmt: skip
PAIRS = [Pair("5 6 7", "8"), Pair("9", "10 1 11 1"), Pair("1", "12 13")]


def contents(store):
    return [tuple(side.tolist() for side in store.pair(i)) for i in range(len(store))]


def test_a_store_gives_back_the_ids_of_every_pair(tmp_path, encoders):
    store = build_store(PAIRS, encoders(), tmp_path / "deep" / "store", max_length=9)
    assert contents(store) == [([5, 6, 7], [8]), ([9], [10, 1, 11, 1]), ([1], [12, 13])]
    assert len(store) == 3
    assert store.source_lengths.tolist() == [4, 2, 2]
    assert store.target_lengths.tolist() == [2, 5, 3]
    meta = store.meta
    assert (meta.source_tokens, meta.target_tokens) == (5, 7)
    assert meta.report == Report(3) and meta.corpus_pairs == [3]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["store"]


def test_a_store_opens_in_another_process(tmp_path, encoders):
    store = build_store(PAIRS, encoders(), tmp_path / "store", max_length=9)
    code = """
        import sys
        from training.data.store import TokenStore
        store = TokenStore.open(sys.argv[1])
        print(store.meta.fingerprint, [s.tolist() for s in store.pair(1)])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "store")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == f"{store.meta.fingerprint} [[9], [10, 1, 11, 1]]"


def test_arrays_are_memory_mapped(tmp_path, encoders):
    store = build_store(PAIRS, encoders(), tmp_path / "store", max_length=9)
    assert isinstance(store.source_tokens, np.memmap) and isinstance(
        store.target_offsets, np.memmap
    )


def test_ids_are_narrow_where_they_fit_and_whole_where_not(tmp_path, encoders):
    pairs = [Pair("65535 4", "65536"), Pair("5", "6")]
    store = build_store(pairs, encoders(2**16, 2**16 + 1), tmp_path / "store", max_length=9)
    assert store.source_tokens.dtype == np.uint16
    assert store.target_tokens.dtype == np.int32
    assert contents(store) == [([65535, 4], [65536]), ([5], [6])]


def test_pairs_too_long_or_without_tokens_are_dropped_and_counted(tmp_path, encoders):
    pairs = [Pair("4 4 4", "5 5 5"), Pair("4", "5 5 5 5"), Pair("4 4 4 4", "5"), Pair(" ", "5")]
    store = build_store(pairs, encoders(), tmp_path / "store", max_length=3)
    assert contents(store) == [([4, 4, 4], [5, 5, 5])]
    assert store.meta.max_length == 3
    assert store.meta.report == Report(
        1,
        {
            "too long (over 3 tokens)": Dropped(
                2,
                [Example("4 tokens", "4", "5 5 5 5"), Example("4 tokens", "4 4 4 4", "5")],
            ),
            "with a side of no tokens": Dropped(1, [Example("1 tokens", " ", "5")]),
        },
    )


def test_the_vocabulary_is_judged_by_all_of_the_text(tmp_path, encoders):
    pairs = [Pair("1 2 2 70", "5"), Pair("4 4", "5 1 " + "6 " * 1200), Pair("9 9 9", "7 7")]
    meta = build_store(pairs, encoders(), tmp_path / "store", max_length=9).meta
    assert (meta.pairs, meta.source_tokens) == (2, 7)
    source, target = meta.source, meta.target
    assert (source.tokens, source.unknown, source.bytes) == (9, 1, 2)
    assert (source.words, source.characters) == (9, 16)
    assert source.lengths[:6] == [0, 0, 1, 1, 1, 0] and sum(source.lengths) == 3
    assert source.longest == [(4, "1 2 2 70"), (3, "9 9 9"), (2, "4 4")]
    # The last number counts all that are as long or longer.
    assert target.tokens == 1205 and target.lengths[1000] == 1 and len(target.lengths) == 1001
    assert target.longest[0][0] == 1202 and len(target.longest[0][1]) < 200


def test_pairs_of_each_corpus_are_counted_as_far_as_they_are_kept(tmp_path, encoders):
    pairs = [Pair("4", "5"), Pair("4 4 4", "5"), Pair("6", "7"), Pair("8", "9")]
    store = build_store(pairs, encoders(), tmp_path / "store", 2, corpus_pairs=[2, 0, 1, 1])
    assert store.meta.corpus_pairs == [1, 0, 1, 1]


def test_no_pair_left_is_refused_and_leaves_nothing(tmp_path, encoders):
    with pytest.raises(
        InputError,
        match="data.max_length is 2: 1 rows, 0 pairs kept; .* 1 too long .over 2 tokens.",
    ):
        build_store([Pair("4 4 4", "5")], encoders(), tmp_path / "store", max_length=2)
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_tells_content_and_cuts(tmp_path, encoders):
    def fingerprint(name, pairs, *sizes):
        store = build_store(pairs, encoders(*sizes), tmp_path / name, 9)
        return store.meta.fingerprint

    reference = fingerprint("a", PAIRS)
    assert fingerprint("b", PAIRS, 2**17, 2**17) == reference, "whatever the dtype"
    assert fingerprint("c", PAIRS[::-1]) != reference
    # The same ids, but cut into pairs elsewhere.
    one, two = [Pair("4 5", "6"), Pair("7", "8")], [Pair("4", "6"), Pair("5 7", "8")]
    assert fingerprint("d", one) != fingerprint("e", two)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "joint.model").write_bytes(learn(ENGLISH, 600))
    return folder


def test_several_processes_give_the_same_store_as_one(tmp_path, vocabulary):
    pairs = [Pair(f"{text} {i}", text) for i in range(600) for text in ENGLISH] * 3
    load = partial(load_encoders, vocabulary)
    stores = [
        build_store(pairs, load, tmp_path / f"{workers} {sampling}", 30, sampling=sampling,
                    seed=(3, 1), workers=workers)
        for sampling in (None, 0.2) for workers in (1, 2)
    ]  # fmt: skip
    plain, sampled = stores[:2], stores[2:]
    assert plain[0].meta == plain[1].meta and plain[0].meta.pairs == 9000
    assert sampled[0].meta == sampled[1].meta
    assert sampled[0].meta.fingerprint != plain[0].meta.fingerprint


def test_a_sample_holds_the_same_pairs_none_longer_than_allowed(tmp_path, encoders):
    pairs = [Pair("4 5 6", "7"), Pair("4 " * 9, "7"), Pair("8 9 " * 2, "5"), Pair("6", "7 7 7 7")]
    plain = build_store(pairs, encoders(), tmp_path / "plain", 4)
    seen = set()
    for seed in range(20):
        store = build_store(pairs, encoders(), tmp_path / str(seed), 4, sampling=0.4, seed=(seed,))
        assert len(store) == 3 and max(store.source_lengths.max(), store.target_lengths.max()) <= 5
        for (source, target), (usual_source, usual_target) in zip(
            contents(store), contents(plain), strict=True
        ):
            assert list(dict.fromkeys(source)) == list(dict.fromkeys(usual_source))
            assert list(dict.fromkeys(target)) == list(dict.fromkeys(usual_target))
        assert contents(store)[1][0] == [8, 9, 8, 9], "no sample of it fits"
        seen.add(store.meta.fingerprint)
    assert len(seen) > 10


def test_failing_pairs_leave_nothing(tmp_path, encoders):
    def pairs():
        yield PAIRS[0]
        raise InputError("bad line")

    with pytest.raises(InputError, match="bad line"):
        build_store(pairs(), encoders(), tmp_path / "store", max_length=9)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_build_leaves_nothing_that_opens(tmp_path, vocabulary):
    code = """
        import os, signal, sys
        from functools import partial
        from pathlib import Path
        from training.data.encoding import load_encoders
        from training.data.rows import Pair
        from training.data.tokenising import build_store
        def pairs():
            for _ in range(10_000):
                yield Pair("A house.", "A tree.")
            os.kill(os.getpid(), signal.SIGKILL)
        load = partial(load_encoders, Path(sys.argv[2]))
        build_store(pairs(), load, sys.argv[1], max_length=99)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "store"), vocabulary]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert len(left) == 1 and left[0].name.startswith(".store.")
    for folder in (tmp_path / "store", left[0]):
        with pytest.raises(InputError, match="is not a token store"):
            TokenStore.open(folder)


def test_an_existing_folder_is_not_overwritten(tmp_path, encoders):
    (tmp_path / "store").mkdir()
    with pytest.raises(InputError, match="store: already exists"):
        build_store(PAIRS, encoders(), tmp_path / "store", max_length=9)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_damaged_stores_are_refused(tmp_path, encoders):
    folder = build_store(PAIRS, encoders(), tmp_path / "store", max_length=9).folder
    meta = json.loads((folder / "meta.json").read_text())

    def refused(pattern):
        with pytest.raises(InputError, match=pattern):
            TokenStore.open(folder)

    (folder / "meta.json").write_text(json.dumps({**meta, "pairs": 4}))
    refused("do not match")
    (folder / "meta.json").write_text(json.dumps({**meta, "format": 0}))
    refused("format")
    (folder / "meta.json").write_text(json.dumps(meta))
    tokens = folder / "target.tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-2])
    refused("damaged")
    del meta["source"]
    (folder / "meta.json").write_text(json.dumps(meta))
    refused("damaged")
    tokens.unlink()
    refused("damaged")


def test_max_length_out_of_range_is_refused(tmp_path, encoders):
    with pytest.raises(InputError, match="max_length"):
        build_store(PAIRS, encoders(), tmp_path / "store", max_length=0)


FULL = """
import resource, sys
from functools import partial
from pathlib import Path
from training.data.encoding import load_encoders
from training.data.tokenising import build_store
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    pairs = [("A house.", "A tree.")] * 20_000
    build_store(pairs, partial(load_encoders, Path(sys.argv[2])), sys.argv[1], 99)
except OSError as error:
    print("refused", error.strerror)
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, vocabulary):
    run = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "store", vocabulary],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.startswith("refused")
    assert list(tmp_path.iterdir()) == []
