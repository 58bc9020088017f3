"""Files as bytes, decompressed where their ending says so."""

import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from kformer.errors import InputError

_KINDS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}

# How the data of a format begins, and what to do with it where text is expected.
_MAGIC = {
    b"\x1f\x8b": ("gzip", "let its name end in .gz"),
    b"\xfd7zXZ\0": ("xz", "let its name end in .xz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "let its name end in .zst"),
    b"PK\x03\x04": ("zip", "unpack it"),
    b"BZh": ("bzip2", "unpack it with bunzip2"),
}


def plain_name(name: str) -> str:
    """A file's name without the ending that says how it is compressed."""
    stem, dot, ending = name.rpartition(".")
    return stem if (dot + ending).lower() in _KINDS else name


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file for reading its content, decompressed if it ends in .gz, .xz or .zst.

    Args:
        path: The file.

    Returns:
        A context with a binary file. What is raised within it while reading becomes an error of
        the user's.

    Raises:
        InputError: The file cannot be opened or read, or is no whole compressed file.
    """
    kind = _KINDS.get(path.suffix.lower())
    try:
        with path.open("rb") as file, _decompressed(file, kind) as content:
            yield content
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError) as error:
        raise InputError(
            f"{path}: not a whole {kind} file ({error}); download or compress it again"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a file's content.

    Raises:
        InputError: As `opened`, and if the content is compressed though the name does not say so.
    """
    with opened(path) as file:
        start = file.read(size)
    for magic, (kind, advice) in _MAGIC.items():
        # "BZh" alone may be a word; what follows it in bzip2 is a digit and pi.
        if start.startswith(magic) and (kind != "bzip2" or start[4:10] == b"1AY&SY"):
            raise InputError(f"{path}: holds {kind} data where text is expected; {advice}")
    return start


def _decompressed(file: BinaryIO, kind: str | None) -> BinaryIO:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=file)
    if kind == "xz":
        return lzma.LZMAFile(file)
    if kind == "zstd":
        return io.BufferedReader(_ZstdReader(file))
    return file


class _ZstdReader(io.RawIOBase):
    """zstd's own `stream_reader` takes a file that was cut off for a whole one; this does not."""

    # Little at a time: 4 KiB of zstd can hold 100 MiB of text, and all of it is given at once.
    _PIECE = 4096

    def __init__(self, file: BinaryIO):
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._content:
            # A file is one frame after another.
            data = self._frame.unused_data or self._file.read(self._PIECE)
            if not data:
                if not self._frame.eof:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._content = memoryview(self._frame.decompress(data))
        count = min(len(buffer), len(self._content))
        buffer[:count] = self._content[:count]
        self._content = self._content[count:]
        return count
