"""The two tokenizers of a translation model, and the files that they are kept in."""

import os
from pathlib import Path
from typing import NamedTuple, Self

from kformer.errors import InputError
from kformer.text.sentencepiece import SentencePieceTokenizer
from kformer.text.tokenizer import Tokenizer
from kformer.text.words import WordTokenizer

_KINDS: tuple[type[Tokenizer], ...] = (SentencePieceTokenizer, WordTokenizer)


class Tokenizers(NamedTuple):
    """Source and target tokenizer; the same object twice where the vocabulary is shared.

    A tuple, so that a `tf.Module` which holds one tracks both for export.
    """

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary, and so may share embeddings."""
        return self.source is self.target

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `joint.*`, or `source.*` and `target.*`, and removes what an earlier save left."""
        if self.joint:
            current = {"joint": self.source}
        else:
            current = {"source": self.source, "target": self.target}
        for name, tokenizer in current.items():
            tokenizer.save(Path(folder) / f"{name}{tokenizer.suffix}")
        kept = {f"{name}{tokenizer.suffix}" for name, tokenizer in current.items()}
        for name in ("joint", "source", "target"):
            for path in _files(folder, name):
                if path.name not in kept:
                    path.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Self:
        """Restores what `save` wrote.

        Raises:
            InputError: a file is missing, damaged or ambiguous.
        """
        if _files(folder, "joint"):
            if _files(folder, "source") or _files(folder, "target"):
                raise InputError(
                    f"{folder}: holds both a joint and separate tokenizers. "
                    "Delete the ones that the model was not trained with."
                )
            joint = load_tokenizer(folder, "joint")
            return cls(joint, joint)
        if not _files(folder, "source") and not _files(folder, "target"):
            raise InputError(
                f"{folder}: no tokenizer here (neither joint.* nor source.* and target.*). "
                "Give the folder that Tokenizers.save wrote."
            )
        return cls(load_tokenizer(folder, "source"), load_tokenizer(folder, "target"))


def load_tokenizer(folder: str | os.PathLike, name: str) -> Tokenizer:
    """Restores the tokenizer saved in `folder` as `name` + its kind's suffix, of whichever kind.

    Raises:
        InputError: there is no such file, there is one of each kind, or it is damaged.
    """
    paths = _files(folder, name)
    names = " or ".join(f"{name}{kind.suffix}" for kind in _KINDS)
    if not paths:
        raise InputError(
            f"{Path(folder) / name}: no tokenizer of this name ({names}). "
            "Learn one and save it there, or give another folder."
        )
    if len(paths) > 1:
        raise InputError(f"{folder}: holds {names.replace(' or ', ' and ')}. Delete one of them.")
    kind = next(kind for kind in _KINDS if kind.suffix == paths[0].suffix)
    return kind.load(paths[0])


def _files(folder: str | os.PathLike, name: str) -> list[Path]:
    paths = [Path(folder) / f"{name}{kind.suffix}" for kind in _KINDS]
    return [path for path in paths if path.is_file()]
