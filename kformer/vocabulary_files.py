"""The files that the vocabularies of a model are kept in. Loads no TensorFlow."""

import os
from pathlib import Path

from kformer.errors import InputError

SUFFIXES = (".model", ".txt")
"""Of SentencePiece's subwords, and of words."""


def vocabulary_files(folder: str | os.PathLike) -> dict[str, Path]:
    """The one file of a shared vocabulary, by "joint", or those of "source" and "target".

    Raises:
        InputError: one is missing, or there are too many.
    """
    found = {
        name: files
        for name in ("joint", "source", "target")
        if (files := files_of_name(folder, name))
    }
    if not found:
        raise InputError(
            f"{folder}: no tokenizer here (neither joint.* nor source.* and target.*). "
            "Give the folder that Tokenizers.save wrote."
        )
    if "joint" in found and len(found) > 1:
        raise InputError(
            f"{folder}: holds both a joint and separate tokenizers. "
            "Delete the ones that the model was not trained with."
        )
    names = ("joint",) if "joint" in found else ("source", "target")
    return {name: vocabulary_file(folder, name) for name in names}


def vocabulary_file(folder: str | os.PathLike, name: str) -> Path:
    """The file of one vocabulary, of whichever kind.

    Raises:
        InputError: there is no such file, or one of each kind.
    """
    files = files_of_name(folder, name)
    names = [f"{name}{suffix}" for suffix in SUFFIXES]
    if not files:
        raise InputError(
            f"{Path(folder) / name}: no tokenizer of this name ({' or '.join(names)}). "
            "Learn one and save it there, or give another folder."
        )
    if len(files) > 1:
        raise InputError(f"{folder}: holds {' and '.join(names)}. Delete one of them.")
    return files[0]


def files_of_name(folder: str | os.PathLike, name: str) -> list[Path]:
    """The files of a vocabulary of this name, of all kinds."""
    paths = [Path(folder) / f"{name}{suffix}" for suffix in SUFFIXES]
    return [path for path in paths if path.is_file()]
