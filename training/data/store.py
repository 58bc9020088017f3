"""Pairs turned into token ids once, and kept in memory-mapped arrays on disk."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import UNK_ID
from kformer.text import Tokenizer, Tokenizers
from training.data.corpus import EMPTY_SIDE, TOO_LONG, CorpusReport, Pair

FORMAT = 1
CHUNK = 4096
SIDES = ("source", "target")


@dataclass(frozen=True)
class StoreMeta:
    """What a store holds, as written in its `meta.json`.

    Args:
        pairs: Number of pairs.
        source_tokens, target_tokens: Number of tokens, start and end not counted.
        source_unknown, target_unknown: How many of them are the unknown token.
        dropped: Pairs left out, by reason.
        first_dropped: For each reason the first pair left out, counted from 1 in the stream.
        max_length: Most tokens a side may have, start and end not counted.
        fingerprint: Hash of all ids and lengths. Two stores with one fingerprint give the same
            batches; the dtype and the folder play no part.
        format: Version of the layout on disk.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    source_unknown: int
    target_unknown: int
    dropped: dict[str, int]
    first_dropped: dict[str, int]
    max_length: int
    fingerprint: str
    format: int = FORMAT


class TokenStore:
    """Tokenised pairs on disk, memory-mapped: opening costs no reading and no memory.

    For each side the ids of all pairs stand one after another in `SIDE.tokens.npy` (uint16 if
    every id fits, else int32), and pair i is `tokens[offsets[i]:offsets[i + 1]]` with the int64
    `SIDE.offsets.npy` (pairs + 1,). Start and end are not stored; batches add them.

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
            raise InputError(f"{folder}: is not a token store (no readable meta.json)") from None
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise InputError(f"{folder}: is not a token store of format {FORMAT}; build it again")
        try:
            meta = StoreMeta(**fields)
            names = [f"{side}.{kind}" for side in SIDES for kind in ("tokens", "offsets")]
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{folder}: is damaged ({error}); build it again") from None
        for side, tokens in zip(SIDES, (meta.source_tokens, meta.target_tokens), strict=True):
            shapes = arrays[f"{side}.tokens"].shape, arrays[f"{side}.offsets"].shape
            if shapes != ((tokens,), (meta.pairs + 1,)):
                raise InputError(
                    f"{folder}: is damaged (the {side} arrays do not match meta.json); "
                    f"build it again"
                )
        return cls(folder, meta, arrays)

    def __len__(self) -> int:
        return self.meta.pairs

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


def build_store(
    pairs: Iterable[Pair],
    tokenizers: Tokenizers,
    folder: str | os.PathLike[str],
    max_length: int,
    chunk: int = CHUNK,
) -> TokenStore:
    """Tokenise a stream of pairs into a new store.

    The work is done in a hidden sibling of `folder`, which takes that name when it is complete: a
    run that is killed leaves nothing at `folder`. Memory is bounded by the chunk.

    Args:
        pairs: The pairs, read once.
        tokenizers: Those of the source and the target.
        folder: Where the store will be; must not exist yet.
        max_length: Pairs with more tokens than this on either side are left out, and so are
            pairs with a side of no tokens. Start and end do not count.
        chunk: Pairs tokenised at a time; does not change the result.

    Raises:
        InputError: If `folder` exists, `max_length` is below 1, or no pair is left; and whatever
            reading the pairs raises.
    """
    folder = Path(folder).absolute()
    if max_length < 1:
        raise InputError(f"max_length must be at least 1. Received: {max_length}")
    if folder.exists():
        raise InputError(f"{folder}: already exists; open it, remove it or name another folder")
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    part.mkdir(parents=True)
    try:
        meta = _write(pairs, tokenizers, part, max_length, chunk)
        # Last of all: a folder without it does not open.
        (part / "meta.json").write_text(json.dumps(asdict(meta), indent=2) + "\n", "utf-8")
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return TokenStore.open(folder)


def _write(
    pairs: Iterable[Pair], tokenizers: Tokenizers, part: Path, max_length: int, chunk: int
) -> StoreMeta:
    report = CorpusReport(unit="pair")
    with _SideWriter(part, "source") as source, _SideWriter(part, "target") as target:
        for texts in _chunks(pairs, chunk):
            source_ids, source_lengths = _tokenize(tokenizers.source, [p.source for p in texts])
            target_ids, target_lengths = _tokenize(tokenizers.target, [p.target for p in texts])
            shorter = np.minimum(source_lengths, target_lengths)
            longer = np.maximum(source_lengths, target_lengths)
            kept = (shorter > 0) & (longer <= max_length)
            seen = report.seen
            for reason, dropped in ((EMPTY_SIDE, shorter == 0), (TOO_LONG, ~kept & (shorter > 0))):
                if dropped.any():
                    report.drop(reason, seen + int(dropped.argmax()) + 1, int(dropped.sum()))
            report.keep(int(kept.sum()))
            source.append(source_ids[np.repeat(kept, source_lengths)], source_lengths[kept])
            target.append(target_ids[np.repeat(kept, target_lengths)], target_lengths[kept])
    if report.kept == 0:
        raise InputError(f"no pair is left to train on with max_length={max_length}: {report}")
    fingerprints = source.finish() + target.finish()
    return StoreMeta(
        pairs=report.kept,
        source_tokens=source.tokens,
        target_tokens=target.tokens,
        source_unknown=source.unknown,
        target_unknown=target.unknown,
        dropped=dict(report.dropped),
        first_dropped=report.first,
        max_length=max_length,
        fingerprint=hashlib.blake2b(fingerprints, digest_size=16).hexdigest(),
    )


class _SideWriter:
    """Writes one side: raw arrays while their size is unknown, .npy files at the end."""

    def __init__(self, folder: Path, side: str):
        self._folder, self._side = folder, side
        self._raw = {kind: folder / f"{side}.{kind}.raw" for kind in ("tokens", "offsets")}
        self._hashes = [hashlib.blake2b(digest_size=16) for _ in self._raw]
        self._largest = 0
        self.pairs = self.tokens = self.unknown = 0

    def __enter__(self) -> "_SideWriter":
        self._files = {kind: path.open("wb") for kind, path in self._raw.items()}
        self._files["offsets"].write(np.zeros(1, "<i8").tobytes())
        return self

    def __exit__(self, *error: Any) -> None:
        for file in self._files.values():
            file.close()

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Add pairs: all their ids (sum of lengths,) and their lengths (pairs,)."""
        offsets = self.tokens + np.cumsum(lengths)
        columns = {"tokens": ids.astype("<i4"), "offsets": offsets.astype("<i8")}
        for (kind, column), digest in zip(columns.items(), self._hashes, strict=True):
            data = column.tobytes()
            self._files[kind].write(data)
            digest.update(data)
        self._largest = max(self._largest, int(ids.max(initial=0)))
        self.unknown += int((ids == UNK_ID).sum())
        self.tokens += len(ids)
        self.pairs += len(lengths)

    def finish(self) -> bytes:
        """Turn the closed raw files into .npy files; return the hash of their content."""
        narrow = self._largest <= np.iinfo(np.uint16).max
        self._convert("tokens", "<i4", "<u2" if narrow else "<i4", self.tokens)
        self._convert("offsets", "<i8", "<i8", self.pairs + 1)
        return b"".join(digest.digest() for digest in self._hashes)

    def _convert(self, kind: str, raw_dtype: str, dtype: str, size: int) -> None:
        raw = np.memmap(self._raw[kind], raw_dtype, "r", shape=(size,))
        path = self._folder / f"{self._side}.{kind}.npy"
        array = np.lib.format.open_memmap(path, "w+", dtype, (size,))
        array[:] = raw
        array.flush()
        del raw  # A mapped file cannot be removed on every system.
        self._raw[kind].unlink()


def _chunks(pairs: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    pairs = iter(pairs)
    while chunk := list(islice(pairs, size)):
        yield chunk


def _tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """All ids (tokens,) int32 and the number of them in each text (batch,) int64."""
    ragged = tokenizer.tokenize(tf.constant(texts, tf.string))
    return ragged.values.numpy(), ragged.row_lengths().numpy()
