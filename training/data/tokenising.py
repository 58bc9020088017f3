"""Pairs turned into token ids, in several processes, into a new store."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kformer.errors import InputError
from kformer.ids import UNK_ID
from training.data.encoding import Encoder, Encoders
from training.data.parallel import in_chunks, in_processes
from training.data.report import EXAMPLES, Dropped, Example, Report, shortened
from training.data.rows import Pair
from training.data.store import LONGEST_COUNTED, SIDES, SideStats, StoreMeta, TokenStore

EMPTY_SIDE = "with a side of no tokens"


def build_store(
    pairs: Iterable[Pair],
    load: Callable[[], Encoders],
    folder: str | os.PathLike[str],
    max_length: int,
    *,
    corpus_pairs: Sequence[int] = (),
    sampling: float | None = None,
    seed: tuple[int, ...] = (0,),
    workers: int | None = None,
) -> TokenStore:
    """Tokenises a stream of pairs into a new store, in several processes if there are many.

    The work is done in a hidden sibling of `folder`, which takes that name when it is complete: a
    run that is killed leaves nothing at `folder`. Memory does not grow with the number of pairs.

    Args:
        pairs: texts in normal form, read once.
        load: loads the encoders; called in each process, so it must be picklable.
        folder: where the store will be; must not exist yet.
        max_length: pairs with more tokens than this on either side are left out, and so are
            pairs with a side of no tokens, but where the source is empty: there it is a line of
            one language. Start and end do not count.
        corpus_pairs: how many of the pairs are from each of several corpora, in their order.
        sampling: split texts one of many ways; see `Encoder.sample`. The same pairs are left out
            as without, and a text that would become longer than `max_length` is split as usual.
        seed: numbers that the sampling depends on.
        workers: how many processes; by default one for each core.

    Raises:
        InputError: `folder` exists, `max_length` is below 1, or no pair is left; and whatever
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
        tasks = (
            _Task(number, [pair[0] for pair in chunk], [pair[1] for pair in chunk])
            for number, chunk in enumerate(in_chunks(pairs, _characters))
        )
        encode = _Encode(load, max_length, sampling, seed)
        meta = _write(in_processes(encode, tasks, workers), part, max_length, corpus_pairs)
        # Last of all: a folder without it does not open.
        (part / "meta.json").write_text(json.dumps(asdict(meta)) + "\n", "utf-8")
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return TokenStore.open(folder)


def _characters(pair: Pair) -> int:
    return len(pair[0]) + len(pair[1])


class _Task(NamedTuple):
    number: int
    sources: list[str]
    targets: list[str]


class _Side(NamedTuple):
    """Ids, (tokens,), and lengths, (pairs,), of the pairs that are kept."""

    ids: np.ndarray
    lengths: np.ndarray
    stats: SideStats


class _Encoded(NamedTuple):
    kept: np.ndarray
    source: _Side
    target: _Side
    report: Report


@dataclass(frozen=True)
class _Encode:
    load: Callable[[], Encoders]
    max_length: int
    sampling: float | None
    seed: tuple[int, ...]

    def __call__(self) -> Callable[[_Task], _Encoded]:
        encoders = self.load()
        return lambda task: self._encode(task, encoders)

    def _encode(self, task: _Task, encoders: Encoders) -> _Encoded:
        texts = (task.sources, task.targets)
        usual = [e.encode(side) for e, side in zip(encoders, texts, strict=True)]
        lengths = np.stack([side_lengths for _, side_lengths in usual])
        without_source = np.array([not source for source in task.sources])
        empty = (lengths[1] == 0) | ((lengths[0] == 0) & ~without_source)
        long = ~empty & (lengths.max(axis=0) > self.max_length)
        kept = ~(empty | long)
        report = Report(int(kept.sum()))
        for reason, out in (
            (EMPTY_SIDE, empty),
            (f"too long (over {self.max_length} tokens)", long),
        ):
            if out.any():
                examples = [
                    Example.of(f"{max(lengths[:, i])} tokens", task.sources[i], task.targets[i])
                    for i in np.flatnonzero(out)[:EXAMPLES]
                ]
                report.add(Report(dropped={reason: Dropped(int(out.sum()), examples)}))
        sides = []
        for number, (encoder, side, ids) in enumerate(zip(encoders, texts, usual, strict=True)):
            stats = _stats(encoder, side, *ids)
            if self.sampling is not None:
                # One seed for each chunk and side, whichever process does it.
                seeds = np.random.SeedSequence((*self.seed, task.number, number))
                draw = int(seeds.generate_state(1)[0])
                ids = _sampled(encoder, side, ids, self.sampling, draw, self.max_length)
            flat, each = ids
            narrow = np.uint16 if encoder.vocab_size <= 2**16 else np.int32
            ids = flat[np.repeat(kept, each)].astype(narrow)
            sides.append(_Side(ids, each[kept], stats))
        return _Encoded(kept, *sides, report)


def _sampled(
    encoder: Encoder,
    texts: list[str],
    usual: tuple[np.ndarray, np.ndarray],
    alpha: float,
    seed: int,
    max_length: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and lengths of texts split one of many ways, as usual where that is too long."""
    ids, lengths = encoder.sample(texts, alpha, seed)
    usual_ids, usual_lengths = usual
    long = lengths > max_length
    if not long.any():
        return ids, lengths
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    usual_rows = np.split(usual_ids, np.cumsum(usual_lengths)[:-1])
    rows = [usual_rows[i] if long[i] else row for i, row in enumerate(rows)]
    return np.concatenate(rows), np.where(long, usual_lengths, lengths)


def _stats(encoder: Encoder, texts: list[str], ids: np.ndarray, lengths: np.ndarray) -> SideStats:
    longest = np.argsort(-lengths, kind="stable")[:EXAMPLES]
    counted = np.minimum(lengths, LONGEST_COUNTED)
    return SideStats(
        tokens=len(ids),
        unknown=int((ids == UNK_ID).sum()),
        bytes=int(encoder.is_byte[ids].sum()),
        words=sum(text.count(" ") + 1 for text in texts),
        characters=sum(map(len, texts)),
        lengths=np.bincount(counted, minlength=LONGEST_COUNTED + 1).tolist(),
        longest=[(int(lengths[i]), shortened(texts[i])) for i in longest],
    )


def _write(
    chunks: Iterable[_Encoded], part: Path, max_length: int, corpus_pairs: Sequence[int]
) -> StoreMeta:
    report, stats = Report(), {side: SideStats() for side in SIDES}
    kept = []
    with _SideWriter(part, "source") as source, _SideWriter(part, "target") as target:
        for chunk in chunks:
            kept.append(chunk.kept)
            report.add(chunk.report)
            for writer, side in ((source, chunk.source), (target, chunk.target)):
                writer.append(side.ids, side.lengths)
                stats[writer.side].add(side.stats)
    if report.kept == 0:
        raise InputError(f"no pair is left; data.max_length is {max_length}: {report}")
    kept = np.concatenate(kept)
    ends = np.cumsum(corpus_pairs or [len(kept)])
    hashes = source.digest() + target.digest()
    return StoreMeta(
        pairs=report.kept,
        corpus_pairs=[int(own.sum()) for own in np.split(kept, ends[:-1])],
        source_tokens=source.tokens,
        target_tokens=target.tokens,
        report=report,
        max_length=max_length,
        fingerprint=hashlib.blake2b(hashes, digest_size=16).hexdigest(),
        **stats,
    )


class _SideWriter:
    """Writes one side as .npy files that grow.

    Plain writes, not a mapped file: where the disk is full, those fail with an error.
    """

    def __init__(self, folder: Path, side: str):
        self._folder, self.side = folder, side
        self._hashes = [hashlib.blake2b(digest_size=16) for _ in range(2)]
        self.pairs = self.tokens = 0

    def __enter__(self) -> "_SideWriter":
        self._files = {
            kind: (self._folder / f"{self.side}.{kind}.npy").open("wb")
            for kind in ("tokens", "offsets")
        }
        self._dtypes = {"tokens": "<i4", "offsets": "<i8"}
        for kind in self._files:
            self._write_header(kind, 0)
        self._files["offsets"].write(np.zeros(1, "<i8").tobytes())
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            for kind, length in (("tokens", self.tokens), ("offsets", self.pairs + 1)):
                self._files[kind].seek(0)
                self._write_header(kind, length)
        finally:
            for file in self._files.values():
                file.close()

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Adds pairs: all their ids, (sum of lengths,), always of one dtype, and their lengths,
        (pairs,)."""
        offsets = (self.tokens + np.cumsum(lengths)).astype("<i8")
        self._dtypes["tokens"] = np.dtype(ids.dtype).newbyteorder("<").str
        self._files["tokens"].write(ids.astype(self._dtypes["tokens"]).tobytes())
        self._files["offsets"].write(offsets.tobytes())
        for digest, column in zip(self._hashes, (ids.astype("<i4"), offsets), strict=True):
            digest.update(column.tobytes())
        self.tokens += len(ids)
        self.pairs += len(lengths)

    def digest(self) -> bytes:
        """The hash of all that was appended."""
        return b"".join(digest.digest() for digest in self._hashes)

    def _write_header(self, kind: str, length: int) -> None:
        # NumPy leaves room in it for an array that grows, so it keeps its size.
        np.lib.format.write_array_header_1_0(
            self._files[kind],
            {"descr": self._dtypes[kind], "fortran_order": False, "shape": (length,)},
        )
