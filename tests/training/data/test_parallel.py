import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from kformer.errors import InputError
from training.data.parallel import in_chunks, in_processes


def make_squarer(offset=0):
    return partial(square, offset)


def square(offset, number):
    if number == -1:
        raise InputError("minus one, line 3")
    if number == -2:
        os._exit(1)
    return number * number + offset, os.getpid()


@pytest.mark.parametrize("count", [0, 1, 8, 9, 40])
@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_tasks(count, workers):
    results = in_processes(partial(make_squarer, 3), range(count), workers)
    assert [result for result, _ in results] == [n * n + 3 for n in range(count)]


def test_many_tasks_are_done_in_several_processes_and_few_in_this_one():
    few = {process for _, process in in_processes(make_squarer, range(8), 2)}
    many = {process for _, process in in_processes(make_squarer, range(200), 2)}
    assert few == {os.getpid()}
    # A second one may start so late that the first has done them all.
    assert os.getpid() in many and 2 <= len(many) <= 3


def test_tasks_are_read_only_a_little_ahead():
    read = []
    results = in_processes(make_squarer, (read.append(n) or n for n in range(100)), 2)
    for done, _ in enumerate(results, start=1):
        assert len(read) <= done + 6


def test_an_error_of_a_task_arrives_as_it_was_raised():
    with pytest.raises(InputError, match="minus one, line 3"):
        list(in_processes(make_squarer, [*range(20), -1, *range(20)], 2))


def test_a_process_that_dies_is_told_in_one_line():
    with pytest.raises(InputError, match="a process that prepares text died"):
        list(in_processes(make_squarer, [*range(20), -2, *range(20)], 2))


def test_chunks_hold_every_item_in_order_and_long_ones_in_short_chunks():
    assert list(in_chunks("abcdefg", len, 3)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert list(in_chunks([], len, 3)) == []
    long = ["a" * 5, "b", "c" * 30, "d", "e", "f"]
    assert list(in_chunks(long, len, 3, 6)) == [long[:2], long[2:3], long[3:]]


ENDLESS = """
import itertools, os
from functools import partial
from training.data.parallel import in_processes

def work(_):
    return os.getpid()

def make():
    return work

if __name__ == "__main__":
    for process in in_processes(make, itertools.count(), 2):
        if process != os.getpid():
            print(process, flush=True)
"""


@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGINT])
def test_no_process_stays_behind(tmp_path, signal_sent):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        # Shells let their background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    workers = {int(process.stdout.readline()) for _ in range(50)}
    process.send_signal(signal_sent)
    process.stdout.close()
    process.wait(timeout=20)
    deadline = time.monotonic() + 20
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def is_alive(pid):
    try:
        state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
