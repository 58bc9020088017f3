"""Parallel text as a stream of pairs, and the split that holds some of them out."""

import codecs
import gzip
import hashlib
import os
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from kformer.errors import InputError
from training.data.rows import Pair

CORPORA = Path(__file__).resolve().parent.parent / "corpora"

MALFORMED_ROW = "malformed row"
EMPTY_SIDE = "empty side"
TOO_LONG = "too long"


@dataclass
class CorpusReport:
    """What became of the rows that went in: `seen == kept + sum(dropped.values())`.

    Args:
        kept: Pairs passed on.
        dropped: Pairs left out, by reason.
        first: For each reason the number, from 1, of the first row it left out.
        unit: What `first` counts: lines of a file, or pairs of a stream.
    """

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    unit: str = "line"

    @property
    def seen(self) -> int:
        return self.kept + self.dropped.total()

    def keep(self, count: int = 1) -> None:
        self.kept += count

    def drop(self, reason: str, number: int, count: int = 1) -> None:
        """Count `count` rows left out for `reason`, the first of them row `number`."""
        self.dropped[reason] += count
        self.first.setdefault(reason, number)

    def __str__(self) -> str:
        reasons = "; ".join(
            f"{reason}: {count} (first at {self.unit} {self.first[reason]})"
            for reason, count in self.dropped.most_common()
        )
        counts = f"{self.kept} pairs kept, {self.dropped.total()} dropped"
        return f"{counts} ({reasons})" if reasons else counts


def embedded_corpora() -> dict[str, Path]:
    """Names of the corpus splits that come with the package, and their files."""
    files = sorted(CORPORA.glob("*/*.tsv"))
    return {f"{file.parent.name}/{file.stem}": file for file in files}


def read_pairs(spec: str | os.PathLike[str], report: CorpusReport | None = None) -> Iterator[Pair]:
    """Read a parallel corpus one pair at a time.

    Text is UTF-8; a byte order mark at the start is removed. A line ends at LF and nowhere else,
    and one CR before the LF is trimmed; nothing else in the text is touched.

    Args:
        spec: One of
            - a TSV file, `file.tsv` or `file.tsv.gz`: source TAB target, further columns ignored,
              quotes are ordinary characters;
            - two files with a line a sentence, `SOURCE,TARGET`, each plain or `.gz`;
            - an embedded corpus split, such as `libreoffice-help.en-de/train`.
        report: Counts the pairs while they are read; rows without a TAB or with an empty side
            are left out and counted there.

    Returns:
        The pairs, in the order of the file. Memory does not grow with the corpus.

    Raises:
        InputError: At once if `spec` names nothing that can be read; while reading if a file is
            not UTF-8 or not gzip, parallel files differ in length, or no pair is left.
    """
    name = os.fspath(spec)
    rows = _open_rows(name)
    return _kept(name, rows, CorpusReport() if report is None else report)


# What one line holds: its two sides, or None where there are not two.
Row = tuple[str, str] | None


def _open_rows(name: str) -> Iterator[Row]:
    """Resolve the name of a corpus to its rows; the files are opened when the rows are read."""
    embedded = embedded_corpora()
    if name in embedded:
        return _tsv_rows(embedded[name])
    if name.endswith((".tsv", ".tsv.gz")) and (Path(name).exists() or "," not in name):
        return _tsv_rows(_existing(name))
    sides = [side.strip() for side in name.split(",")]
    if len(sides) == 2 and all(sides):
        return _parallel_rows(*map(_existing, sides))
    raise InputError(
        f"{name!r} is not a corpus: give a .tsv or .tsv.gz file, two parallel files as "
        f"SOURCE,TARGET, or one of {', '.join(embedded)}"
    )


def _existing(name: str) -> Path:
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{path}: is a directory; give a file")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(
            f"{path}: is no regular file, and it is read more than once; save it first"
        )
    return path


def _kept(name: str, rows: Iterator[Row], report: CorpusReport) -> Iterator[Pair]:
    """Pass on the rows that are pairs and count all of them; cleaning rules belong here."""
    number, kept = 0, 0
    for number, row in enumerate(rows, 1):
        reason = _reason_to_drop(row)
        if reason is None:
            kept += 1
            report.keep()
            yield Pair(*row)
        else:
            report.drop(reason, number)
    if number == 0:
        raise InputError(f"{name}: is empty; a corpus needs at least one pair")
    if kept == 0:
        raise InputError(f"{name}: no usable pair in {number} lines: {report}")


def _reason_to_drop(row: Row) -> str | None:
    if row is None:
        return MALFORMED_ROW
    source, target = row
    if not source.strip() or not target.strip():
        return EMPTY_SIDE
    return None


def _tsv_rows(path: Path) -> Iterator[Row]:
    for line in _lines(path):
        columns = line.split("\t", 2)
        yield (columns[0], columns[1]) if len(columns) > 1 else None


def _parallel_rows(source: Path, target: Path) -> Iterator[Row]:
    sources, targets = _lines(source), _lines(target)
    for number, row in enumerate(zip_longest(sources, targets), 1):
        if None in row:
            # One line of the longer file is already read; the rest is counted for the message.
            rest = sum(1 for _ in (targets if row[0] is None else sources))
            counts = (number - 1, number + rest)
            if row[1] is None:
                counts = counts[::-1]
            raise InputError(
                f"parallel files differ in length: {source} has {counts[0]} lines, "
                f"{target} has {counts[1]} lines; line n of one must translate line n of the other"
            )
        yield row


def _lines(path: Path) -> Iterator[str]:
    """Lines of a text file without their ends, decoded one by one so that an error has a line."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # Binary files are cut at b"\n" only; text mode would also cut at a lone CR.
            for number, line in enumerate(file, 1):
                if number == 1:
                    _require_text(path, line)
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {number}: not UTF-8 (byte 0x{error.object[error.start]:02x} at offset "
            f"{error.start} of the line); convert the file to UTF-8"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(
            f"{path}: not a whole gzip file ({error}, after line {number}); compress it again"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _require_text(path: Path, first_line: bytes) -> None:
    # UTF-16 of plain ASCII without a mark is valid UTF-8, full of NULs: nothing else would notice.
    if first_line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in first_line:
        raise InputError(
            f"{path}, line 1: not UTF-8, looks like UTF-16; "
            f"convert it, for example with iconv -f UTF-16 -t UTF-8"
        )
    if first_line.startswith(b"\x1f\x8b"):
        raise InputError(f"{path}, line 1: not UTF-8, looks like gzip; name the file .gz")


@dataclass(frozen=True)
class Split:
    """Which pairs are for training and which are held out, decided by the source alone.

    The hash of a source is a number below 2**64. Sources with the lowest hashes are for the test,
    those with the highest for validation; so pairs that share a source never part, and two
    numbers are all there is to remember.
    """

    test_to: int
    valid_from: int

    def part(self, source: str) -> str:
        """`"train"`, `"valid"` or `"test"`."""
        position = _source_hash(source)
        if position <= self.test_to:
            return "test"
        return "valid" if position >= self.valid_from else "train"

    def select(self, pairs: Iterable[Pair], *parts: str) -> Iterator[Pair]:
        """The pairs that belong to any of `parts`, in their order."""
        return (pair for pair in pairs if self.part(pair.source) in parts)


def split_pairs(pairs: Iterable[Pair], fraction: float = 0.02, limit: int = 2000) -> Split:
    """Hold out a share of a corpus for validation and as much again for the test.

    A pure function of the set of sources and the arguments: order and repetition do not matter,
    nor do differences of case, of white space or of Unicode composition. While the corpus grows
    with `fraction` in force, a held-out source stays held out and a training source stays in
    training. `fraction` is halved whenever the share would pass `limit`, which moves held-out
    sources to training, never the other way.

    Args:
        pairs: Read once; 8 bytes a pair are held.
        fraction: Share of the different sources in each held-out part, above 0 and below 0.5.
        limit: At most so many different sources in each held-out part.

    Raises:
        InputError: If an argument is out of range or there are fewer than 3 different sources.
    """
    if not 0 < fraction < 0.5:
        raise InputError(f"fraction must be above 0 and below 0.5. Received: {fraction}")
    if limit < 1:
        raise InputError(f"limit must be at least 1. Received: {limit}")
    hashes = np.unique(np.fromiter((_source_hash(pair.source) for pair in pairs), np.uint64))
    count = len(hashes)
    if count < 3:
        raise InputError(
            f"cannot hold out validation and test pairs from {count} different sources; "
            f"at least 3 are needed, or give validation and test files"
        )
    while fraction * count > limit:
        fraction /= 2
    share = int(fraction * 2**64)
    in_test = int(np.searchsorted(hashes, np.uint64(share)))
    in_valid = count - int(np.searchsorted(hashes, np.uint64(2**64 - share)))
    # A tiny corpus may have nothing in its share, or too much: one at least, and train the most.
    in_test, in_valid = (min(max(part, 1), (count - 1) // 2) for part in (in_test, in_valid))
    return Split(test_to=int(hashes[in_test - 1]), valid_from=int(hashes[count - in_valid]))


def _source_hash(source: str) -> int:
    normal = " ".join(unicodedata.normalize("NFC", source).casefold().split())
    # Not Python's hash: that differs from one process to the next.
    return int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=8).digest(), "big")
