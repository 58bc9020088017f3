"""Pairs as token ids, in memory-mapped arrays on disk."""

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kformer.errors import InputError
from training.data.report import EXAMPLES, Report

FORMAT = 2
SIDES = ("source", "target")
LONGEST_COUNTED = 1000


@dataclass
class SideStats:
    """One side of the text as its vocabulary splits it; pairs that are too long are counted too.

    Args:
        tokens: number of tokens, start and end not counted.
        unknown: how many of them are the unknown token.
        bytes: how many of them are bytes of characters without a piece.
        words: number of words: what spaces part.
        characters: number of characters.
        lengths: how many texts have 0, 1, 2, ... tokens; the last number is of 1,000 and more.
        longest: tokens and beginnings of the longest texts, the longest first.
    """

    tokens: int = 0
    unknown: int = 0
    bytes: int = 0
    words: int = 0
    characters: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * (LONGEST_COUNTED + 1))
    longest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "SideStats") -> None:
        """Counts further text."""
        for key in ("tokens", "unknown", "bytes", "words", "characters"):
            setattr(self, key, getattr(self, key) + getattr(other, key))
        self.lengths = [a + b for a, b in zip(self.lengths, other.lengths, strict=True)]
        both = [*self.longest, *other.longest]
        self.longest = sorted(both, key=lambda item: -item[0])[:EXAMPLES]


@dataclass(frozen=True)
class StoreMeta:
    """What a store holds, as written in its `meta.json`.

    Args:
        pairs: Number of pairs.
        corpus_pairs: How many of them are from each corpus, in their order.
        source_tokens, target_tokens: Number of tokens, start and end not counted.
        source, target: What the vocabularies made of the text.
        report: Which pairs were left out.
        max_length: Most tokens a side may have, start and end not counted.
        fingerprint: Hash of all ids and lengths. Two stores with one fingerprint give the same
            batches; the dtype and the folder play no part.
        format: Version of the layout on disk.
    """

    pairs: int
    corpus_pairs: list[int]
    source_tokens: int
    target_tokens: int
    source: SideStats
    target: SideStats
    report: Report
    max_length: int
    fingerprint: str
    format: int = FORMAT

    @property
    def of_lines(self) -> bool:
        """Whether these are lines of one language: targets without a source."""
        return self.source_tokens == 0

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "StoreMeta":
        sides = {side: SideStats(**content[side]) for side in SIDES}
        for stats in sides.values():
            stats.longest = [tuple(item) for item in stats.longest]  # JSON knows lists only.
        return cls(**{**content, **sides, "report": Report.from_dict(content["report"])})


class TokenStore:
    """Tokenised pairs on disk, memory-mapped: opening costs no reading and no memory.

    For each side the ids of all pairs stand one after another in `SIDE.tokens.npy` (uint16 if
    the vocabulary is so small, else int32), and pair i is `tokens[offsets[i]:offsets[i + 1]]` with
    the int64 `SIDE.offsets.npy` (pairs + 1,). Start and end are not stored; batches add them.

    Use `build_store` to make one and `TokenStore.open` to open it.
    """

    def __init__(self, folder: Path, meta: StoreMeta, arrays: dict[str, np.ndarray]):
        self.folder = folder
        self.meta = meta
        self.source_tokens = arrays["source.tokens"]
        self.source_offsets = arrays["source.offsets"]
        self.target_tokens = arrays["target.tokens"]
        self.target_offsets = arrays["target.offsets"]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "TokenStore":
        """Open a finished store.

        Raises:
            InputError: If the folder is missing, unfinished, damaged or of another format.
        """
        folder = Path(folder)
        try:
            fields = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(
                f"{folder}: is not a token store (no readable meta.json); delete {folder.parent} "
                "and start again"
            ) from None
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise InputError(f"{folder}: is not a token store of format {FORMAT}; build it again")
        try:
            meta = StoreMeta.from_dict(fields)
            names = [f"{side}.{kind}" for side in SIDES for kind in ("tokens", "offsets")]
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
        except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
            raise InputError(
                f"{folder}: is damaged ({error}); delete {folder.parent} and start again"
            ) from None
        for side, tokens in zip(SIDES, (meta.source_tokens, meta.target_tokens), strict=True):
            shapes = arrays[f"{side}.tokens"].shape, arrays[f"{side}.offsets"].shape
            if shapes != ((tokens,), (meta.pairs + 1,)):
                raise InputError(
                    f"{folder}: is damaged (the {side} arrays do not match meta.json); "
                    f"delete {folder.parent} and start again"
                )
        return cls(folder, meta, arrays)

    def __len__(self) -> int:
        return self.meta.pairs

    def epoch(self, epoch: int) -> "TokenStore":
        """The tokens of an epoch: the same in all of them."""
        return self

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """Positions each source takes in a batch: its tokens and END. int32 (pairs,)."""
        return (np.diff(self.source_offsets) + 1).astype(np.int32)

    @cached_property
    def target_lengths(self) -> np.ndarray:
        """Positions each target takes in a batch: START and its tokens as decoder input, its
        tokens and END as labels. int32 (pairs,)."""
        return (np.diff(self.target_offsets) + 1).astype(np.int32)

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Source and target ids of one pair, int32, without start and end."""
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        source = self.source_tokens[self.source_offsets[index] : self.source_offsets[index + 1]]
        target = self.target_tokens[self.target_offsets[index] : self.target_offsets[index + 1]]
        return np.array(source, np.int32), np.array(target, np.int32)
