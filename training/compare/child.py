"""A command as a process of its own, which can be stopped and leaves what it said."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kformer.errors import InputError

STOPPED = 130
"""Exit status of a command that was interrupted and can be gone on with."""


class CommandError(InputError):
    """A command ended with an error of its own."""


def run_module(words: Sequence[str], log: Path, show: Callable[[str], None], locks=()) -> None:
    """Runs `python -m MODULE ...` to its end.

    It has its memory, its devices and its random states for itself. Ctrl-C reaches it once, from
    here: a training saves a checkpoint then.

    Args:
        words: the module and its arguments.
        log: file that all it prints is added to.
        show: called with each line it prints.
        locks: file descriptors that it holds open as long as it lives.

    Raises:
        KeyboardInterrupt: it was stopped.
        CommandError: it failed; the message is its own.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    last = f"see {log}"
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ python -m {' '.join(words)}\n")
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,  # What a terminal sends goes to its own group only.
            # A shell's background jobs, and so their children, ignore it unless told otherwise.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            pass_fds=locks,
        )
        with process, _stopping(process):
            for line in process.stdout:
                file.write(line)
                file.flush()
                if line.startswith("error: "):
                    last = line.removeprefix("error: ").strip()
                show(line.rstrip("\n"))
            status = process.wait()
    if status == STOPPED:
        raise KeyboardInterrupt
    if status:
        raise CommandError(f"{words[0]} ended with status {status}: {last}")


@contextlib.contextmanager
def _stopping(process: subprocess.Popen):
    """Hands an interrupt on and waits for the end; a second one ends the process at once.

    SIGTERM does the same.
    """
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            # Not read, it would wait for someone to read it.
            for _ in process.stdout:
                pass
            process.wait()
        except KeyboardInterrupt:
            process.kill()
        raise
    except BaseException:
        process.kill()
        raise
    finally:
        signal.signal(signal.SIGTERM, usual)
