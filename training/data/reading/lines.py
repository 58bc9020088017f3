"""The lines of a text file, and what is wrong with text that is not UTF-8."""

import codecs
import io
from collections.abc import Iterator
from pathlib import Path

import charset_normalizer

from kformer.errors import InputError
from training.data.reading.compression import head, opened

# UTF-32 first: the mark of its little-endian form begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def text_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, one at a time.

    A line ends at LF and nowhere else, and one CR before it is trimmed. Byte order marks at the
    start of a line are removed, as files that were concatenated have them in the middle. Nothing
    else in the text is touched.

    Args:
        path: The file; see `opened` for compressed ones.
        encoding: What the bytes are, unless a byte order mark says that they are another UTF.

    Returns:
        The lines without their ends.

    Raises:
        InputError: While reading: the file cannot be read or a line is not in the encoding.
    """
    start = head(path)
    encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), encoding)
    if encoding == "utf-8" and (wide := _utf16_without_mark(start)):
        raise InputError(f"{path}, line 1: not UTF-8, looks like {wide}; {_conversion(wide, path)}")
    number = 0
    try:
        # Python's own reader decodes many lines at once; newline="\n" makes it cut at LF only.
        with opened(path) as content, io.TextIOWrapper(content, encoding, newline="\n") as file:
            for line in file:
                if line[0] == "\ufeff":
                    line = line.lstrip("\ufeff")
                yield line.removesuffix("\n").removesuffix("\r")
                number += 1
    except UnicodeDecodeError as error:
        # All whole lines before the block that failed have been passed on.
        before = error.object[: error.start].decode(encoding, "replace")
        raise _not_text(path, number + 1 + before.count("\n"), encoding, error) from None


def _utf16_without_mark(start: bytes) -> str | None:
    """UTF-16 of plain ASCII is valid UTF-8 full of NULs: nothing else would notice.

    Its NULs all stand at odd or all at even places, and its line feeds have one. Neither is true
    of text in which a NUL occurs.
    """
    start = start[: len(start) // 2 * 2]
    for name, high in (("utf-16-le", start[1::2]), ("utf-16-be", start[0::2])):
        nuls = high.count(0)
        if nuls < 2 or nuls * 10 < len(high) or start.count(0) > 1.1 * nuls:
            continue
        feeds = start.count(b"\n")
        if feeds:
            wide = 2 * start.decode(name, "replace").count("\n") >= feeds
        else:
            wide = nuls * 10 > len(high) * 9
        if wide:
            return name
    return None


def _not_text(path: Path, line: int, encoding: str, error: UnicodeDecodeError) -> InputError:
    what = f"{path}, line {line}: not {encoding.upper()} (byte 0x{error.object[error.start]:02x})"
    if encoding != "utf-8":
        return InputError(f"{what}, though the file says so; convert it to UTF-8")
    sample = bytes(error.object[max(0, error.start - 1024) : error.start + 3072])
    best = charset_normalizer.from_bytes(sample).best()
    guess = codecs.lookup(best.encoding).name if best else None
    # Odd bytes can always be taken for UTF-16 or for the character sets of mainframes.
    sure = guess and ("\n".encode(guess) == b"\n" or ("utf" in guess and len(sample) > 64))
    if not sure:
        return InputError(f"{what}; convert it to UTF-8, or remove what is no text")
    return InputError(f"{what}, perhaps {guess}; {_conversion(guess, path)}")


def _conversion(encoding: str, path: Path) -> str:
    return f"convert it, for example with: iconv -f {encoding} -t UTF-8 {path} > NEW"
