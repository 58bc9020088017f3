"""How every command line ends: a status, and what the user can put right in one line."""

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from kformer.errors import InputError


def run_command(command: Callable[[], int]) -> int:
    """Runs a command; what the user can put right becomes one line on stderr and status 2.

    Args:
        command: returns the exit status.

    Returns:
        That status; 2 after such an error; 130 if interrupted; 141 if whoever read the output
        had enough of it.
    """
    try:
        # Python has none of these where the shell closed it (`>&-`).
        if sys.stdout is None:
            raise InputError("standard output is closed; send it to a file or to /dev/null")
        for stream in (sys.stdout, sys.stderr):
            # What the user's encoding does not have is escaped: text is no reason to fail.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return command()
    except InputError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        # Python would flush once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("interrupted", file=sys.stderr)
        return 130


def leave(status: int) -> NoReturn:
    """Ends the process, also where a thread still waits for a line that may never come."""
    # Python's own end would wait for the thread. Its first part, in which TensorFlow removes the
    # files that it has made, has no public name.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    os._exit(status)


def _refuse(message: str) -> int:
    if sys.stderr is not None:
        print(f"error: {' '.join(message.splitlines())}", file=sys.stderr)
    return 2
