"""Work on a stream of tasks in several processes, the results in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from kformer.errors import InputError

# Processes take a second to start: what these tasks hold is done sooner than that.
_TASKS_ALONE = 8

Task = TypeVar("Task")
Result = TypeVar("Result")

_work: Callable[[Any], Any]


def in_chunks(
    items: Iterable[Task], length: Callable[[Task], int], size: int = 4096, most: int = 4_000_000
) -> Iterator[list[Task]]:
    """The items in lists.

    Args:
        items: read once.
        length: of an item, in characters.
        size: items of a list.
        most: characters of a list, unless one item alone has more: long texts must not fill the
            memory.
    """
    chunk: list[Task] = []
    characters = 0
    for item in items:
        chunk.append(item)
        characters += length(item)
        if len(chunk) == size or characters >= most:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def in_processes(
    make: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task], workers: int | None = None
) -> Iterator[Result]:
    """The results of all tasks, in the order of the tasks.

    The first few tasks are done in this process; others start only if there are more. Few tasks
    are read ahead, so that memory does not grow with their number.

    Args:
        make: makes, once in each process, the function that does a task. It is sent to the
            processes, as are tasks and results, so it must be picklable.
        tasks: read once.
        workers: how many processes; by default one for each core this process may use. 1 starts
            none.

    Raises:
        InputError: a process died; and whatever the tasks and the function raise.
    """
    workers = _cores() if workers is None else workers
    tasks = iter(tasks)
    work = make()
    for task in tasks if workers == 1 else islice(tasks, _TASKS_ALONE):
        yield work(task)
    first = next(tasks, None)
    if first is None:
        return
    del work  # It may be large.
    # Not fork: TensorFlow's threads, if it is loaded, do not survive it.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start, (make,))
    try:
        running = deque([pool.submit(_do, first)])
        for task in tasks:
            running.append(pool.submit(_do, task))
            if len(running) > 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            "a process that prepares text died. Is there memory left? A script of your own must "
            'call this under `if __name__ == "__main__":`'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    # Where a scheduler gave this process some of the machine's cores, Linux knows.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(make: Callable[[], Callable[[Any], Any]]) -> None:
    global _work
    # Ctrl-C reaches the whole group; the first process says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = make()


def _end_with_parent() -> None:
    # The queue it waits on stays open when the first process is killed.
    multiprocessing.parent_process().join()
    os._exit(1)


def _do(task: Any) -> Any:
    return _work(task)
