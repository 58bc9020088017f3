"""All runs of an experiment, one after another, as far as they are not done."""

import statistics
import time
from collections.abc import Sequence

from training.callbacks.progress import clock
from training.compare.child import CommandError
from training.compare.results import check_comparable
from training.compare.rounds import minutes, read_rounds
from training.compare.runs import Run, log_file, train_run
from training.compare.translations import translate_run


def work(runs: Sequence[Run], lock: int) -> list[str]:
    """Trains and translates what is missing, and shows how far it is.

    A run that fails does not keep the others from being made.

    Args:
        runs: all of the experiment, in this order.
        lock: file descriptor that a command holds open as long as it lives.

    Returns:
        For each run that failed its name and why.

    Raises:
        KeyboardInterrupt: it was stopped; the same again goes on.
        InputError: two runs have different test text.
    """
    failed, seconds = [], []
    finished = [run for run in runs if run.is_finished]
    waiting = len(runs) - len(finished)
    began = time.perf_counter()
    for number, run in enumerate(runs, 1):
        is_new, started = run not in finished, time.perf_counter()
        left = _left(finished, seconds, waiting) if is_new else "  finished"
        print(f"run {number}/{len(runs)}  {run.name}{left}", flush=True)
        try:
            if is_new:
                waiting -= 1
                train_run(run, _show, (lock,))
                finished.append(run)
            check_comparable(finished)
            translate_run(run, _show, (lock,))
            if is_new:
                seconds.append(time.perf_counter() - started)
        except CommandError as error:
            print(f"    failed: {error} (all of it: {log_file(run)})", flush=True)
            failed.append(f"{run.name}: {error}")
        except KeyboardInterrupt:
            print(f"\nstopped in run {number}/{len(runs)}; the same command goes on", flush=True)
            raise
    print(f"done in {clock(time.perf_counter() - began)}\n", flush=True)
    return failed


def _left(finished: Sequence[Run], seconds: Sequence[float], waiting: int) -> str:
    """About how long the runs that wait take.

    Args:
        finished: runs whose rounds tell, if need be.
        seconds: what those took that were made just now, translations included.
        waiting: how many wait.
    """
    if not finished:
        return ""
    each = statistics.fmean(seconds or [60 * minutes(read_rounds(run)) for run in finished])
    return f"  about {clock(each * waiting)} left"


def _show(line: str) -> None:
    """Of what a command prints, the figures of a round."""
    if line.startswith(("update ", "translated ")):
        print(f"    {line}", flush=True)
