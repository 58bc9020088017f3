"""Pretrained word vectors, as GloVe and word2vec publish them, for the words of a vocabulary."""

import codecs
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kformer.errors import InputError
from kformer.subwords.pieces import RESERVED_PIECES

_COUNT = re.compile(rb"\d{1,18}")
_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


class WordVectors(Protocol):
    """A file of words with a vector each, of which no more is kept than is asked for."""

    path: Path
    dimension: int
    """Width of the vectors."""
    not_utf8: int
    """Words that the last `read` passed over: a vocabulary is UTF-8, and has none of them."""

    def read(self, words: Collection[str]) -> dict[str, np.ndarray]:
        """The vectors, float32 (dimension,), of those of the words that the file has.

        Raises:
            InputError: the file is malformed, or gives one of the words twice.
        """


def open_vectors(name: str) -> WordVectors:
    """Opens a text file of vectors, or VECTORS.npy,WORDS.txt.

    Raises:
        InputError: it cannot be read, or does not begin as such a file does.
    """
    array, comma, words = name.rpartition(",")
    if comma and not Path(name).exists():
        return ArrayVectors(Path(array), Path(words))
    return TextVectors(Path(name))


class TextVectors:
    """Lines of a word and its numbers, parted by single spaces, as GloVe and word2vec write them.

    A first line of two whole numbers, as word2vec has it, gives the number of words and the
    dimension. Otherwise the dimension is that of the first line. Words may hold spaces, but for the
    first. A file may end in .gz.

    Args:
        path: the file, in UTF-8.

    Raises:
        InputError: it cannot be read, or its first line is no vector.
    """

    def __init__(self, path: Path):
        self.path = path
        self.not_utf8 = 0
        lines = _lines(path)
        number, line = next(lines, (1, b""))
        fields = line.rstrip().split(b" ")
        self._has_header = len(fields) == 2 and all(map(_COUNT.fullmatch, fields))
        self.dimension = int(fields[1]) if self._has_header else len(fields) - 1
        if self._has_header and self.dimension:
            # Of a binary file only what follows the header tells.
            number, line = next(lines, (2, b"none 0"))
            fields = line.rstrip().split(b" ")
        is_vector = len(fields) > 1 and _NUMBER.fullmatch(fields[-1])
        if self.dimension < 1 or not is_vector or _decoded(fields[0]) is None:
            raise InputError(
                f"{path}, line {number}: must be a word in UTF-8 and its numbers, parted by spaces "
                f"(word2vec's binary format is not read). Received: {_shown(line)}"
            )

    def read(self, words: Collection[str]) -> dict[str, np.ndarray]:
        wanted, found, lines = set(words), {}, {}
        self.not_utf8 = 0
        for number, line in _lines(self.path):
            line = line.rstrip(b" \t")
            if not line or (number == 1 and self._has_header):
                continue
            word = self._word(number, line)
            if word is None:
                self.not_utf8 += 1
            if word not in wanted:
                continue
            if word in found:
                raise InputError(
                    f"{self.path}, line {number}: repeats {word!r} of line {lines[word]}"
                )
            found[word], lines[word] = self._vector(number, line), number
        return found

    def _word(self, number: int, line: bytes) -> str | None:
        spaces = line.count(b" ")
        if spaces == self.dimension:
            word = line[: line.index(b" ")]
        else:
            # From the right: the words of some files hold spaces, such as ". . .".
            word = line.rsplit(b" ", self.dimension)[0]
            numbers = 0
            for part in reversed(line.split(b" ")[1:]):
                if not _NUMBER.fullmatch(part):
                    break
                numbers += 1
            if spaces < self.dimension or numbers > self.dimension:
                raise InputError(
                    f"{self.path}, line {number}: must hold a word and {self.dimension} numbers, "
                    f"as line 1 says. Received: {numbers} numbers, {_shown(line)}"
                )
        return _decoded(word)

    def _vector(self, number: int, line: bytes) -> np.ndarray:
        fields = line.rsplit(b" ", self.dimension)[1:]
        try:
            with np.errstate(over="ignore"):
                vector = np.array([float(field) for field in fields], np.float64).astype(np.float32)
        except ValueError as error:
            raise InputError(f"{self.path}, line {number}: {error}") from None
        if not np.isfinite(vector).all():
            raise InputError(f"{self.path}, line {number}: holds a number that is not finite")
        return vector


class ArrayVectors:
    """An array of a row for each word, and the words, one a line.

    Args:
        path: the array in NumPy's format, floats (words, dimension); it is not read as a whole.
        words: the words, in UTF-8.

    Raises:
        InputError: there is no such array.
    """

    def __init__(self, path: Path, words: Path):
        self.path, self.words, self.not_utf8 = path, words, 0
        try:
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
        except (ValueError, EOFError) as error:
            raise InputError(f"{path}: is no array in NumPy's format ({error})") from error
        shape = getattr(self._array, "shape", None)
        if shape is None or len(shape) != 2 or 0 in shape or self._array.dtype.kind != "f":
            raise InputError(f"{path}: must be an array of floats, a row for each word")
        self.dimension = shape[1]

    def read(self, words: Collection[str]) -> dict[str, np.ndarray]:
        wanted, rows, count = set(words), {}, 0
        self.not_utf8 = 0
        for count, line in _lines(self.words):
            word = _decoded(line)
            if word is None:
                self.not_utf8 += 1
            if word not in wanted:
                continue
            if word in rows:
                raise InputError(
                    f"{self.words}, line {count}: repeats {word!r} of line {rows[word] + 1}"
                )
            rows[word] = count - 1
        if count != len(self._array):
            raise InputError(
                f"{self.words}: must hold a line for each of the {len(self._array):,} rows of "
                f"{self.path}. Received: {count:,} lines"
            )
        vectors = self._array[list(rows.values())].astype(np.float32)
        for word, vector in zip(rows, vectors, strict=True):
            if not np.isfinite(vector).all():
                raise InputError(
                    f"{self.path}, row {rows[word] + 1}: holds a number that is not finite"
                )
        return dict(zip(rows, vectors, strict=True))


@dataclass(frozen=True)
class Coverage:
    """How much of a vocabulary has vectors.

    Args:
        pieces: number of its pieces, reserved ones not counted.
        exact: how many of them have a vector as they are written.
        lower_cased: how many have one in lower case only.
        not_utf8: words of the file that are no UTF-8, and so of no piece.
        text: share of the running text's tokens that these are; None if that is not known.
    """

    pieces: int
    exact: int
    lower_cased: int
    not_utf8: int = 0
    text: float | None = None

    def __str__(self) -> str:
        found = self.exact + self.lower_cased
        text = "" if self.text is None else f", {self.text:.1%} of the running text"
        passed = f"; {self.not_utf8:,} words of the file are not UTF-8" if self.not_utf8 else ""
        return (
            f"for {found:,} of {self.pieces:,} pieces ({found / max(self.pieces, 1):.1%}{text}), "
            f"{self.lower_cased:,} of them by their lower case{passed}"
        )


def embedding_matrix(
    words: Sequence[str | None],
    vectors: WordVectors,
    seed: int = 0,
    counts: np.ndarray | None = None,
) -> tuple[np.ndarray, Coverage]:
    """A table of a vector for each id of a vocabulary.

    A word has the vector of its spelling, or else of its lower case. What has none is drawn from
    the normal distribution that has the mean and the spread of those found, dimension by dimension.

    Args:
        words: what each id is, None where it is no word (see `Tokenizer.words`).
        vectors: the pretrained ones.
        seed: of what is drawn.
        counts: how often each id occurs in the text.

    Returns:
        float32 (ids, dimension), and what was found. The spread is that of the file.

    Raises:
        InputError: the file is malformed, or has none of the words.
    """
    known = vectors.read({form for word in words if word for form in (word, word.lower())})
    exact = [i for i, word in enumerate(words) if word in known]
    lower_cased = [
        i for i, word in enumerate(words) if word and word not in known and word.lower() in known
    ]
    if not known:
        raise InputError(
            f"{vectors.path}: has no vector for any word of the vocabulary. Is it of another "
            "language, or is the vocabulary one of subwords?"
        )
    found = np.stack(
        [known[words[i]] for i in exact] + [known[words[i].lower()] for i in lower_cased]
    )
    normal = np.random.default_rng(seed).standard_normal((len(words), vectors.dimension))
    matrix = (found.mean(axis=0) + found.std(axis=0) * normal).astype(np.float32)
    matrix[exact + lower_cased] = found
    share = None
    if counts is not None:
        share = float(counts[exact + lower_cased].sum() / max(counts.sum(), 1))
    pieces = len(words) - len(RESERVED_PIECES)
    return matrix, Coverage(pieces, len(exact), len(lower_cased), vectors.not_utf8, share)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines and their numbers from 1, without their ends."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield number, line.rstrip(b"\r\n")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: is no whole gzip file ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _decoded(word: bytes) -> str | None:
    """A word as text; None if it is not UTF-8."""
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _shown(line: bytes) -> str:
    text = line[:40].decode("utf-8", "replace")
    return repr(text + "..." if len(line) > 40 else text)
