"""The two tokenizers of a translation model, and the files that they are kept in."""

import os
from pathlib import Path
from typing import NamedTuple, Self

from kformer.text.sentencepiece import SentencePieceTokenizer
from kformer.text.tokenizer import Tokenizer
from kformer.text.words import WordTokenizer
from kformer.vocabulary_files import files_of_name, vocabulary_file, vocabulary_files

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
            for path in files_of_name(folder, name):
                if path.name not in kept:
                    path.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Self:
        """Restores what `save` wrote.

        Raises:
            InputError: a file is missing, damaged or ambiguous.
        """
        loaded = {name: _load(path) for name, path in vocabulary_files(folder).items()}
        joint = loaded.get("joint")
        return cls(loaded.get("source", joint), loaded.get("target", joint))


def load_tokenizer(folder: str | os.PathLike, name: str) -> Tokenizer:
    """Restores the tokenizer saved in `folder` as `name` + its kind's suffix, of whichever kind.

    Raises:
        InputError: there is no such file, there is one of each kind, or it is damaged.
    """
    return _load(vocabulary_file(folder, name))


def _load(path: Path) -> Tokenizer:
    kind = next(kind for kind in _KINDS if kind.suffix == path.suffix)
    return kind.load(path)
