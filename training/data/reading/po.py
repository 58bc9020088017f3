"""gettext: translations of a program's messages, .po and .pot."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import polib

from kformer.errors import InputError
from training.data.reading.compression import head
from training.data.reading.lines import text_lines
from training.data.reading.names import Names
from training.data.reading.texts import one_line
from training.data.rows import Row

# polib takes in all it is given; this many lines at a time, up to the end of an entry.
_LINES = 500
# What stands on a line that is no comment. polib does not look whether quotes are closed.
_LINE = re.compile(r'((msgctxt|msgid|msgid_plural|msgstr(\[\d+\])?)\s*)?".*"')
# polib would end a line at each of these; only LF does.
_LINE_ENDS = str.maketrans(dict.fromkeys("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", " "))


class _Entries(polib.POFile):
    """Entries as they come: polib would take an entry without msgid for the header of any piece."""

    def find(self, *args, **options) -> None:
        return None


def po_rows(path: Path, names: Names) -> Iterator[Row]:
    """Rows of a gettext file: msgid and msgstr.

    An entry with plural forms gives two rows: msgid with the first form and msgid_plural with the
    last, which is the general one. What `msgfmt` would leave out of a catalogue has an empty
    target here: entries that are not translated, fuzzy (nobody has confirmed them) or obsolete
    (no program has them any more). The header gives no row. The encoding is the header's.

    Args:
        path: The file.
        names: Not used; the format knows what is source and what target.

    Returns:
        The rows, each with the line at which its entry starts.

    Raises:
        InputError: As `text_lines`, or if a line breaks the format.
    """
    first = True
    for start, lines in _pieces(path):
        for entry in _parsed(path, start, lines):
            if entry.msgid or not first:
                yield from _entry_rows(start + max(entry.linenum, 1) - 1, entry)
            first = False


def _entry_rows(line: int, entry: polib.POEntry) -> Iterator[Row]:
    forms = [entry.msgstr]
    sources = [entry.msgid]
    if entry.msgid_plural:
        sources.append(entry.msgid_plural)
        forms = [entry.msgstr_plural[index] for index in sorted(entry.msgstr_plural)] or [""]
    if entry.fuzzy or entry.obsolete:
        forms = [""]
    targets = (forms[0], forms[-1])
    for source, target in zip(sources, targets, strict=False):
        yield Row(line, one_line(source), one_line(target))


def _pieces(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Cuts a file between entries; gives the number of each piece's first line and its lines."""
    start, lines, complete = 1, [], False
    for number, line in enumerate(text_lines(path, _charset(path)), 1):
        line = line.translate(_LINE_ENDS).strip()
        if line in ("#~", "#|"):  # nothing is commented out; polib asks for something
            line = ""
        content = line[2:].lstrip() if line.startswith("#~") else line
        if content and not content.startswith(("#", "|")) and not _LINE.fullmatch(content):
            raise InputError(
                f"{path}, line {number}: not gettext; expected a comment, or a keyword such as "
                f"msgid with its text in double quotes. Received: {content[:50]!r}"
            )
        if content.startswith("msgstr"):
            complete = True
        elif complete and content.startswith(("#", "|", "msgid", "msgctxt")):
            complete = False
            if len(lines) >= _LINES:
                yield start, lines
                start, lines = number, []
        lines.append(line)
    yield start, lines


def _parsed(path: Path, start: int, lines: list[str]) -> polib.POFile:
    try:
        return polib.pofile("\n".join(chain(lines, [""])), encoding="utf-8", klass=_Entries)
    except OSError as error:
        found = re.search(r"\(line (\d+)\)(: .*)?", str(error))
        line = start + int(found[1]) - 1 if found else start
        what = (found and found[2]) or ": not what gettext has there"
        raise InputError(f"{path}, line {line}: syntax error{what}") from None


def _charset(path: Path) -> str:
    """What the header says; "CHARSET", which templates have there, is UTF-8."""
    charset = polib.detect_encoding(head(path, 65536).decode("latin-1") + "\n")
    printable = bytes(range(32, 127))
    try:
        if printable.decode(charset) == printable.decode("ascii"):
            return charset
    except (LookupError, UnicodeError):
        pass
    raise InputError(f"{path}: charset {charset} in the header cannot be read; convert it to UTF-8")
