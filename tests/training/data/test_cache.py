import os
import signal
import subprocess
import sys
import time

import pytest

from kformer.errors import InputError
from training.data.cache import Cache, _machine, default_cache, fingerprint
from training.data.progress import say


def make_file(text):
    def make(folder):
        (folder / "file").write_text(text)

    return make


def never(folder):
    raise AssertionError("made although it was there")


def names(root):
    return sorted(path.name for path in root.iterdir())


def test_a_folder_is_made_once_for_equal_causes(tmp_path):
    cache = Cache(tmp_path / "cache")
    folder, reused = cache.folder("kind", {"a": 1, "b": [2]}, make_file("x"))
    assert not reused and (folder / "file").read_text() == "x"
    assert Cache(tmp_path / "cache").folder("kind", {"b": [2], "a": 1}, never) == (folder, True)


@pytest.mark.parametrize("other", [{"a": 2}, {"a": "1"}, {"b": 1}, {"a": 1, "b": None}, [1]])
def test_other_causes_have_another_folder(tmp_path, other):
    cache = Cache(tmp_path)
    first, _ = cache.folder("kind", {"a": 1}, make_file("x"))
    second, reused = cache.folder("kind", other, make_file("y"))
    assert not reused and second != first
    assert (first / "file").read_text() == "x" and (second / "file").read_text() == "y"


def test_what_fails_leaves_nothing(tmp_path):
    def fail(folder):
        make_file("half")(folder)
        raise InputError("no such text")

    with pytest.raises(InputError, match="no such text"):
        Cache(tmp_path).folder("kind", 1, fail)
    assert names(tmp_path) == []


def test_two_at_once_end_up_with_one_whole_folder(tmp_path):
    cache = Cache(tmp_path)

    def make_while_another_does(folder):
        cache.folder("kind", 1, make_file("the other"))
        make_file("mine")(folder)

    folder, _ = cache.folder("kind", 1, make_while_another_does)
    assert names(tmp_path) == [folder.name]
    assert (folder / "file").read_text() in ("the other", "mine")


KILLED = """
import os, sys, time
from pathlib import Path
from training.data.cache import Cache
def make(folder):
    (folder / "file").write_text("half")
    print("half", flush=True)
    time.sleep(60)
Cache(Path(sys.argv[1])).folder("kind", 1, make)
"""


def test_a_killed_process_leaves_nothing_that_looks_whole_and_is_cleaned_up_after(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "half\n"
    cache = Cache(tmp_path)
    assert not cache.folder("other", 2, make_file("x"))[1]
    assert sum(".partial-" in name for name in names(tmp_path)) == 1, "still being made"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    folder, reused = cache.folder("kind", 1, make_file("whole"))
    assert not reused and (folder / "file").read_text() == "whole"
    assert not any(".partial-" in name for name in names(tmp_path))


FULL = """
import resource, sys
from pathlib import Path
from training.data.cache import Cache
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
def make(folder):
    with (folder / "file").open("wb") as file:
        for _ in range(100):
            file.write(bytes(10_000))
try:
    Cache(Path(sys.argv[1])).folder("kind", 1, make)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_is_told_with_what_to_do_and_leaves_nothing(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("InputError") and "--data.cache" in run.stdout
    assert run.stdout.count("\n") == 1
    assert names(tmp_path) == []


def test_leftovers_of_any_host_name_are_removed_and_strangers_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node-1.example.org")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for process in (gone.pid, os.getpid()):
        (tmp_path / f".kind-1.partial-{_machine()}-{process}-abcd").mkdir()
    for name in (".foo.partial", ".foo.partial-", ".foo.partial-other-7-5-abcd"):
        (tmp_path / name).mkdir()
    Cache(tmp_path).folder("kind", 1, make_file("x"))
    left = [name for name in names(tmp_path) if name.startswith(".")]
    assert len(left) == 4 and not any(f"-{gone.pid}-" in name for name in left)


def test_an_error_of_the_output_is_not_blamed_on_the_cache(tmp_path, monkeypatch):
    def print_to_a_closed_pipe(folder):
        monkeypatch.setattr("sys.stdout", open("/dev/full", "w"))
        say("reading ...")

    with pytest.raises(OSError) as caught:
        Cache(tmp_path).folder("kind", 1, print_to_a_closed_pipe)
    assert caught.value.filename == "output" and names(tmp_path) == []


def test_a_cache_that_holds_everything_may_be_there_to_read_from_alone(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")
    file = tmp_path / "text"
    file.write_text("one")
    os.utime(file, (time.time() - 100,) * 2)
    known, _ = cache.folder("kind", 1, make_file("x"))

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    assert len(cache.file_hash(file)) == 32
    assert cache.folder("kind", 1, never) == (known, True)


def test_a_root_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/cache.*--data.cache"):
        Cache(tmp_path / "file" / "cache")


def test_a_file_has_another_hash_when_its_content_changes(tmp_path):
    cache = Cache(tmp_path / "cache")
    file = tmp_path / "text"
    hashes = set()
    for content in ("one", "two", "three"):
        file.write_text(content)
        hashes.add(cache.file_hash(file))
        assert cache.file_hash(file) in hashes
    assert len(hashes) == 3
    file.write_text("one")
    assert cache.file_hash(file) in hashes


def test_a_file_that_stays_is_not_read_again(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")
    file = tmp_path / "text"
    file.write_text("one")
    os.utime(file, (time.time() - 100,) * 2)
    known = cache.file_hash(file)
    monkeypatch.setattr("hashlib.file_digest", never)
    assert cache.file_hash(file) == known


def test_the_same_text_elsewhere_has_the_same_hash(tmp_path):
    cache = Cache(tmp_path / "cache")
    for name in ("a", "b"):
        (tmp_path / name).write_text("one")
    assert cache.file_hash(tmp_path / "a") == cache.file_hash(tmp_path / "b")


def test_the_default_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "kformer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache() == tmp_path / "home" / ".cache" / "kformer"


def test_a_fingerprint_is_the_same_in_every_process():
    code = "from training.data.cache import fingerprint; print(fingerprint({'b': 1, 'a': ['ü']}))"
    for seed in "01":
        other = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert other.stdout.strip() == fingerprint({"a": ["ü"], "b": 1})
