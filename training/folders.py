"""Folders that commands make: whole or not at all, and never over something else."""

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from kformer.errors import InputError


def check_folder(path: Path, option: str, overwrite: bool, mark: str) -> None:
    """Refuses to make a folder where something is that must stay.

    Args:
        path: where it will be.
        option: of the command line, which names another.
        overwrite: whether one made by the same command may be replaced.
        mark: a file by which such a one is known.

    Raises:
        InputError: something is there.
    """
    if path.exists() and not overwrite:
        raise InputError(f"{path}: exists. Name another with {option}, or replace it: --overwrite")
    if path.exists() and not (path / mark).is_file():
        raise InputError(f"{path}: holds no {mark}, so it is not replaced. Name another: {option}")


@contextlib.contextmanager
def making_folder(path: Path, overwrite: bool) -> Iterator[Path]:
    """A hidden folder beside `path`, which takes its place, whole, at the end.

    Raises:
        InputError: it cannot be written, or `path` was made by another process meanwhile.
    """
    given, path = path, path.resolve()
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        partial.mkdir(parents=True)
        yield partial
        if path.exists() and not overwrite:
            raise InputError(f"{given}: was made by another process meanwhile. Name another")
        if path.exists():
            # Renamed first, so that at no moment is a folder half there.
            old = partial.with_suffix(".old")
            path.rename(old)
            partial.rename(path)
            shutil.rmtree(old)
        else:
            partial.rename(path)
    except OSError as error:
        # Of a copy that failed, the first is where it came from.
        where = error.filename2 or error.filename or path
        raise InputError(f"{where}: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not path.exists():
            for parent in missing:
                with contextlib.suppress(OSError):
                    parent.rmdir()
