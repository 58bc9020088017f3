"""What is made of a corpus once and used again: folders on disk under the hash of their causes."""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kformer.errors import InputError
from training.data.progress import OUTPUT

# A file that changed this recently may change again without its time telling, in seconds.
_UNSETTLED = 2.0

_MARK = ".partial-"


def default_cache() -> Path:
    """`kformer` in the user's cache folder, as the XDG base directory specification has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kformer"


class Cache:
    """Folders under a root, each named after the fingerprint of all that made it what it is.

    A folder appears whole or not at all: it is made in a hidden sibling, which takes its name at
    the end. What a killed process left of one is removed by the next that makes something.

    Args:
        root: where they lie; made if need be.

    Raises:
        InputError: the root cannot be made.
    """

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root)
        with _disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)

    def folder(self, kind: str, causes: Any, make: Callable[[Path], None]) -> tuple[Path, bool]:
        """The folder that these causes lead to.

        Args:
            kind: begins its name.
            causes: everything its content depends on, fit for JSON.
            make: fills the empty folder it is given; called if there is none yet.

        Returns:
            The folder, and whether it was there already.

        Raises:
            InputError: it cannot be written, as on a full disk; and whatever `make` raises.
        """
        folder = self.root / f"{kind}-{fingerprint(causes)}"
        if folder.is_dir():
            return folder, True
        self._remove_leftovers()
        partial = (
            self.root / f".{folder.name}{_MARK}{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
        )
        try:
            with _disk_errors(self.root):
                partial.mkdir()
                make(partial)
                try:
                    partial.rename(folder)
                except OSError as error:
                    # Another process made the same meanwhile: the same causes, the same folder.
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                        raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return folder, False

    def file_hash(self, path: Path) -> str:
        """The hash of a file's content, remembered while its size and its times stay the same."""
        path = path.absolute()
        memory = self.root / "files" / f"{fingerprint(str(path))}.json"
        status = path.stat()
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            known = json.loads(memory.read_text("utf-8"))
            if known["state"] == state:
                return known["hash"]
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
        if time.time() - status.st_mtime > _UNSETTLED:
            partial = memory.with_suffix(f".{secrets.token_hex(4)}.partial")
            # It saves time only, and the cache may be there to read from alone.
            with contextlib.suppress(OSError):
                memory.parent.mkdir(exist_ok=True)
                partial.write_text(json.dumps({"state": state, "hash": content}), "utf-8")
                partial.replace(memory)
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        return content

    def _remove_leftovers(self) -> None:
        """Removes what processes of this machine that are gone have left."""
        for partial in self.root.glob(f".*{_MARK}*"):
            machine, _, rest = partial.name.rpartition(_MARK)[2].rpartition("-")[0].rpartition("-")
            if machine == _machine() and rest.isdecimal() and not _is_running(int(rest)):
                shutil.rmtree(partial, ignore_errors=True)


def fingerprint(causes: Any) -> str:
    """A name for what JSON can hold; equal contents have one name."""
    content = json.dumps(causes, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


def _machine() -> str:
    """Where a process number means what it means here: containers may share a name and a disk."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}-{os.stat('/proc/self/ns/pid').st_ino}"
    return socket.gethostname()


@contextlib.contextmanager
def _disk_errors(root: Path):
    try:
        yield
    except OSError as error:
        if error.filename == OUTPUT:
            raise
        raise InputError(
            f"{error.filename or root}: {error.strerror or error}. What is made of a corpus lies "
            f"in {root}; make room there, or name another folder: --data.cache"
        ) from error


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
