"""From what a user wrote to the files that are read and the rows in them."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kformer.errors import InputError
from training.data.reading import huggingface
from training.data.reading.compression import plain_name
from training.data.reading.jsonl import jsonl_rows
from training.data.reading.names import UNNAMED, Names
from training.data.reading.patterns import expand, expand_pair
from training.data.reading.plain import line_rows, parallel_rows, tsv_rows
from training.data.reading.po import po_rows
from training.data.reading.tmx import tmx_rows
from training.data.rows import Row

__all__ = ["CORPORA", "PAIR_CHOICES", "Names", "Part", "Source", "embedded_corpora", "resolve"]

CORPORA = Path(__file__).resolve().parents[2] / "corpora"

# By a file's ending: what reads it and what its rows are numbers of.
_FORMATS: dict[str, tuple[Callable[[Path, Names], Iterator[Row]], str]] = {
    ".tsv": (tsv_rows, "line"),
    ".jsonl": (jsonl_rows, "line"),
    ".ndjson": (jsonl_rows, "line"),
    ".json-lines": (jsonl_rows, "line"),
    ".tmx": (tmx_rows, "unit"),
    ".po": (po_rows, "line"),
    ".pot": (po_rows, "line"),
    ".txt": (line_rows, "line"),
}
# Of these, the endings of text in one language.
_OF_LINES = (".txt",)
PAIR_CHOICES = (
    f"a file that ends in {', '.join(end for end in _FORMATS if end not in _OF_LINES)} (also with "
    ".gz, .xz or .zst after it), two parallel files as SOURCE,TARGET, a Hugging Face dataset as "
    "hf:NAME:SPLIT or hf:FOLDER"
)
_CHOICES = f"{PAIR_CHOICES}, for a language model also lines of one language in a .txt"


@dataclass(frozen=True)
class Part:
    """A file, a pair of parallel files or a dataset.

    Args:
        name: What messages call it.
        files: The files that are read.
        unit: What `Row.line` counts in it: "line", "unit" of TMX or "row" of a dataset.
        read: Gives the rows from the start.
        of_lines: Whether these are lines of one language: targets without a source.
    """

    name: str
    files: tuple[Path, ...]
    unit: str
    read: Callable[[], Iterator[Row]]
    of_lines: bool = False

    def rows(self) -> Iterator[Row]:
        """The rows in their order, one at a time; every call starts anew.

        Raises:
            InputError: While reading, naming the file and the line.
        """
        return self.read()


@dataclass(frozen=True)
class Source:
    """Text that a user named: pairs, or lines of one language.

    Args:
        name: As the user wrote it.
        parts: Where it is, in order; several if the name has wildcards.
    """

    name: str
    parts: tuple[Part, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that is read, in order."""
        return tuple(file for part in self.parts for file in part.files)


def embedded_corpora(folder: Path = CORPORA) -> dict[str, Path]:
    """Names of the corpus splits that come with the package, and their files."""
    files = sorted(folder.glob("*/*.tsv"))
    return {f"{file.parent.name}/{file.stem}": file for file in files}


def resolve(
    spec: str | os.PathLike[str],
    names: Names = UNNAMED,
    corpora: Mapping[str, Path] | None = None,
) -> Source:
    """Find the text that a user named; nothing but a dataset's description is read yet.

    Args:
        spec: One of
            - an embedded corpus split, such as `libreoffice-help.en-de/train`;
            - `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`, `hf:FOLDER` or `hf:FOLDER:SPLIT`, a dataset
              of Hugging Face's `datasets`;
            - a file whose ending says what it is: `.tsv` (source TAB target), `.jsonl`, `.ndjson`,
              `.json-lines`, `.tmx`, `.po` or `.pot`; `.txt` holds lines of one language;
            - `SOURCE,TARGET`, two files of which line n of one translates line n of the other.
            Files may be compressed, with `.gz`, `.xz` or `.zst` after their ending. The wildcards
            `*`, `?` and `[...]` stand for all files that match, in the order of their names; in
            `SOURCE,TARGET` what they match in the source is filled into the target.
        names: What names the sides in formats that name them.
        corpora: Embedded corpora by name; those of the package if None.

    Raises:
        InputError: `spec` names nothing that can be read.
    """
    name = os.fspath(spec)
    corpora = embedded_corpora() if corpora is None else corpora
    if name in corpora:
        return Source(name, (_part(os.fspath(corpora[name]), names, called=name),))
    if name.startswith(huggingface.PREFIX):
        columns = huggingface.Columns(name, names)
        return Source(name, (Part(name, columns.files, "row", columns.rows),))
    found = expand(name)
    sides = [side.strip() for side in name.split(",")]
    if not found and len(sides) == 2 and all(sides):
        pairs = expand_pair(*sides)
        return Source(name, tuple(_parallel_part(*pair) for pair in pairs))
    if not found and name and _ending(name) in _FORMATS:
        wild = any(char in name for char in "*?[")
        raise InputError(f"{name}: no file matches" if wild else f"{name}: no such file")
    if not found:
        embedded = f", or one of {', '.join(corpora)}" if corpora else ""
        raise InputError(f"{name!r} is not a corpus: give {_CHOICES}{embedded}")
    return Source(name, tuple(_part(file, names) for file in found))


def _part(file: str, names: Names, called: str | None = None) -> Part:
    path = _readable(file)
    ending = _ending(file)
    if ending not in _FORMATS:
        raise InputError(f"{file}: its ending does not say what it holds; give {_CHOICES}")
    read, unit = _FORMATS[ending]
    return Part(called or file, (path,), unit, partial(read, path, names), ending in _OF_LINES)


def _parallel_part(source: str, target: str) -> Part:
    if all(_ending(side) in _FORMATS.keys() - set(_OF_LINES) for side in (source, target)):
        raise InputError(
            f"{source},{target}: each is a corpus of its own; give one of them, "
            f"or as SOURCE,TARGET two files of plain text, a sentence a line"
        )
    files = _readable(source), _readable(target)
    return Part(f"{source},{target}", files, "line", partial(parallel_rows, *files))


def _ending(name: str) -> str:
    return os.path.splitext(plain_name(name))[1].lower()


def _readable(name: str) -> Path:
    if os.path.isdir(name):
        raise InputError(f"{name}: is a directory; give a file")
    if not os.path.exists(name):
        raise InputError(f"{name}: no such file")
    if not os.path.isfile(name):
        raise InputError(
            f"{name}: is no regular file, and it is read more than once; save it first"
        )
    path = Path(name)
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    return path
