import json
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kformer.errors import InputError
from training.data.rows import Pair
from training.data.store import TokenStore, build_store

PAIRS = [Pair("5 6 7", "8"), Pair("9", "10 1 11 1"), Pair("1", "12 13")]


def contents(store):
    return [tuple(side.tolist() for side in store.pair(i)) for i in range(len(store))]


def test_a_store_gives_back_the_ids_of_every_pair(tmp_path, tokenizers):
    store = build_store(PAIRS, tokenizers, tmp_path / "deep" / "store", max_length=9, chunk=2)
    assert contents(store) == [([5, 6, 7], [8]), ([9], [10, 1, 11, 1]), ([1], [12, 13])]
    assert len(store) == 3
    assert store.source_lengths.tolist() == [4, 2, 2]
    assert store.target_lengths.tolist() == [2, 5, 3]
    meta = store.meta
    assert (meta.source_tokens, meta.target_tokens) == (5, 7)
    assert (meta.source_unknown, meta.target_unknown) == (1, 2)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["store"]


def test_a_store_opens_in_another_process(tmp_path, tokenizers):
    store = build_store(PAIRS, tokenizers, tmp_path / "store", max_length=9)
    code = """
        import sys
        from training.data.store import TokenStore
        store = TokenStore.open(sys.argv[1])
        print(store.meta.fingerprint, [s.tolist() for s in store.pair(1)])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "store")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == f"{store.meta.fingerprint} [[9], [10, 1, 11, 1]]"


def test_arrays_are_memory_mapped(tmp_path, tokenizers):
    store = build_store(PAIRS, tokenizers, tmp_path / "store", max_length=9)
    assert isinstance(store.source_tokens, np.memmap) and isinstance(
        store.target_offsets, np.memmap
    )


def test_ids_are_narrow_where_they_fit_and_whole_where_not(tmp_path, tokenizers):
    pairs = [Pair("65535 4", "65536"), Pair("5", "6")]
    store = build_store(pairs, tokenizers, tmp_path / "store", max_length=9)
    assert store.source_tokens.dtype == np.uint16
    assert store.target_tokens.dtype == np.int32
    assert contents(store) == [([65535, 4], [65536]), ([5], [6])]


def test_pairs_too_long_or_without_tokens_are_dropped_and_counted(tmp_path, tokenizers):
    pairs = [Pair("4 4 4", "5 5 5"), Pair("4", "5 5 5 5"), Pair("4 4 4 4", "5"), Pair(" ", "5")]
    store = build_store(pairs, tokenizers, tmp_path / "store", max_length=3, chunk=2)
    assert contents(store) == [([4, 4, 4], [5, 5, 5])]
    assert store.meta.dropped == {"too long": 2, "empty side": 1}
    assert store.meta.first_dropped == {"too long": 2, "empty side": 4}
    assert store.meta.max_length == 3


def test_no_pair_left_is_refused_and_leaves_nothing(tmp_path, tokenizers):
    with pytest.raises(InputError, match=r"max_length=2: .*too long: 1 \(first at pair 1\)"):
        build_store([Pair("4 4 4", "5")], tokenizers, tmp_path / "store", max_length=2)
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_tells_content_not_chunks(tmp_path, tokenizers):
    def fingerprint(name, pairs, chunk=4096):
        return build_store(pairs, tokenizers, tmp_path / name, 9, chunk).meta.fingerprint

    reference = fingerprint("a", PAIRS)
    assert fingerprint("b", PAIRS, chunk=1) == reference
    assert fingerprint("c", PAIRS[::-1]) != reference
    # The same ids, but cut into pairs elsewhere.
    one, two = [Pair("4 5", "6"), Pair("7", "8")], [Pair("4", "6"), Pair("5 7", "8")]
    assert fingerprint("d", one) != fingerprint("e", two)


def test_failing_pairs_leave_nothing(tmp_path, tokenizers):
    def pairs():
        yield PAIRS[0]
        raise InputError("bad line")

    with pytest.raises(InputError, match="bad line"):
        build_store(pairs(), tokenizers, tmp_path / "store", max_length=9, chunk=1)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_build_leaves_nothing_that_opens(tmp_path):
    code = """
        import os, signal, sys
        from types import SimpleNamespace
        import tensorflow as tf
        from training.data.rows import Pair
        from training.data.store import build_store
        def pairs():
            for _ in range(1000):
                yield Pair("4 5", "6")
            os.kill(os.getpid(), signal.SIGKILL)
        words = SimpleNamespace(
            tokenize=lambda texts: tf.strings.to_number(tf.strings.split(texts), tf.int32)
        )
        both = SimpleNamespace(source=words, target=words)
        build_store(pairs(), both, sys.argv[1], max_length=9, chunk=10)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "store")]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert len(left) == 1 and left[0].name.startswith(".store.")
    for folder in (tmp_path / "store", left[0]):
        with pytest.raises(InputError, match="is not a token store"):
            TokenStore.open(folder)


def test_an_existing_folder_is_not_overwritten(tmp_path, tokenizers):
    (tmp_path / "store").mkdir()
    with pytest.raises(InputError, match="store: already exists"):
        build_store(PAIRS, tokenizers, tmp_path / "store", max_length=9)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_damaged_stores_are_refused(tmp_path, tokenizers):
    folder = build_store(PAIRS, tokenizers, tmp_path / "store", max_length=9).folder
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
    tokens.unlink()
    refused("damaged")


def test_max_length_out_of_range_is_refused(tmp_path, tokenizers):
    with pytest.raises(InputError, match="max_length"):
        build_store(PAIRS, tokenizers, tmp_path / "store", max_length=0)
