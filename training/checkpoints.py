"""Checkpoints: all that a training needs to go on as if nothing had happened, on disk."""

import contextlib
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kformer.errors import InputError
from training.folders import making_folder

if TYPE_CHECKING:
    import keras

_VARIABLES, _STATE = "variables.npz", "state.json"


class Checkpoint(NamedTuple):
    """What was saved: arrays of variables by group, and the state of everything else."""

    path: Path
    variables: dict[str, list[np.ndarray]]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    batches: int,
    variables: dict[str, Sequence["keras.Variable"]],
    state: dict[str, Any],
) -> Path:
    """Writes a checkpoint, whole or not at all.

    Args:
        folder: where checkpoints lie, one folder each.
        batches: how many were used; names it.
        variables: groups of variables, saved in their order.
        state: fit for JSON.
    """
    path = folder / f"batch-{batches:08}"
    with making_folder(path, overwrite=True) as partial:
        arrays = {
            f"{group}.{i:05}": variable.numpy()
            for group, members in variables.items()
            for i, variable in enumerate(members)
        }
        with (partial / _VARIABLES).open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        content = {**state, "sha256": file_hash(partial / _VARIABLES)}
        (partial / _STATE).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return path


def remove_checkpoints(folder: Path, keep: int, keep_best: int) -> None:
    """Removes all checkpoints but the newest, and those of the best scores.

    Args:
        folder: where checkpoints lie.
        keep: how many of the newest stay.
        keep_best: how many of the best stay.
    """
    paths = _newest_first(folder)
    stay = {*paths[:keep], *best_checkpoints(folder, keep_best)}
    for path in paths:
        if path not in stay:
            shutil.rmtree(path, ignore_errors=True)


def best_checkpoints(folder: Path, count: int) -> list[Path]:
    """The folders of the checkpoints with the best scores, the best first, of equal ones the
    older; those made between validations have none."""
    scored = []
    for path in all_checkpoints(folder) if count else ():
        with contextlib.suppress(OSError, ValueError):
            score = json.loads((path / _STATE).read_text("utf-8")).get("score")
            if score is not None:
                scored.append(([-math.inf if value is None else value for value in score], path))
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return [path for _, path in scored[:count]]


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; says on standard error which are not.

    Args:
        folder: where checkpoints lie.
    """
    for path in _newest_first(folder):
        try:
            return read_checkpoint(path)
        except InputError as error:
            print(f"warning: {error}; taking the one before", file=sys.stderr)
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """One checkpoint.

    Raises:
        InputError: it is missing, cut off or changed.
    """
    try:
        state = json.loads((path / _STATE).read_text("utf-8"))
        if state.pop("sha256") != file_hash(path / _VARIABLES):
            raise ValueError("its variables are not those that were saved")
        variables: dict[str, list[np.ndarray]] = {}
        with np.load(path / _VARIABLES) as arrays:
            for name in sorted(arrays.files):
                variables.setdefault(name.rpartition(".")[0], []).append(arrays[name])
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: is no whole checkpoint ({error})") from error
    return Checkpoint(path, variables, state)


def all_checkpoints(folder: Path) -> list[Path]:
    """The folders of all checkpoints, the oldest first."""
    return _newest_first(folder)[::-1]


def last_update(folder: Path) -> int:
    """How many updates the newest checkpoint that can be read is from; 0 without one."""
    for path in _newest_first(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads((path / _STATE).read_text("utf-8"))["update"])
    return 0


def assign(
    variables: Sequence["keras.Variable"], arrays: Sequence[np.ndarray], where: Path
) -> None:
    """Gives variables the values of a checkpoint.

    Raises:
        InputError: they are of other shapes.
    """
    shapes = [tuple(variable.shape) for variable in variables]
    saved = [array.shape for array in arrays]
    if shapes != saved:
        raise InputError(
            f"{where}: is of another model ({len(saved)} variables, here {len(shapes)}; "
            f"{_first_difference(shapes, saved)})"
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _first_difference(shapes: list, saved: list) -> str:
    for here, there in zip(shapes, saved, strict=False):
        if here != there:
            return f"one has the shape {there}, here {here}"
    return "some are missing on one side"


def _newest_first(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(folder.glob("batch-*"), key=lambda path: path.name, reverse=True)
    return []


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
