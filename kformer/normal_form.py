"""One spelling for each text in plain Python: the twin of `kformer.text.normalize`."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from kformer.errors import InputError

_SPACES = "\t\n\v\f\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ODD = re.compile(f"[\0-\x1f\x7f-\x9f{_SPACES}\ud800-\udfff]")
_IS_SPACE = re.compile(f"[{_SPACES}]").match
# UTF-8 has no surrogates. Written as if it had, each is three bytes, none of them valid.
_INVALID = "\ufffd" * 3


def normal_form(text: str) -> str:
    """Text as one line of valid Unicode in canonical form (NFC), as every tokenizer sees it.

    Each white-space character becomes one ASCII space (runs keep their length), the other control
    characters go, lone surrogates become U+FFFD, and both ends are trimmed. The result is that of
    `kformer.text.normalize`, without TensorFlow: for processes that must not load it.

    Where Python's Unicode is older than the 16.0 of TensorFlow Text (3.11: 14.0, 3.12: 15.0,
    3.13: 15.1), a text may differ that holds a character which Python does not know and 16.0
    reorders or composes: 42 for Python 3.11, combining marks and composed letters of Arabic
    (U+0897, U+10EFD to U+10EFF), Cyrillic (U+1E08F), Todhri, Garay, Tulu-Tigalari, Kawi, Gurung
    Khema, Kirat Rai, Nag Mundari and Ol Onal.

    Args:
        text: any string.

    Returns:
        Its normal form; the same object where nothing changes.
    """
    # By far the most frequent of the odd ones, in French on every other line.
    text = text.replace("\xa0", " ")
    # A printable text has neither controls nor surrogates, and no space but the ASCII one.
    if not text.isprintable():
        text = _ODD.sub(_mended, text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return text.strip(" ")


def _mended(match: re.Match) -> str:
    character = match[0]
    if _IS_SPACE(character):
        return " "
    return _INVALID if character >= "\ud800" else ""


def strings(texts: Iterable[str | bytes]) -> Iterator[str]:
    """Each text as a string; bytes are read as UTF-8, and what is invalid there becomes U+FFFD.

    Raises:
        InputError: `texts` is a single string, or holds something that is not a string.
    """
    if isinstance(texts, str | bytes):
        raise InputError(
            f"texts must be an iterable of strings; wrap a single one in a list. "
            f"Received: {texts[:40]!r}"
        )
    for index, text in enumerate(texts):
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        elif not isinstance(text, str):
            raise InputError(f"texts must hold strings only. Received: {text!r} at index {index}")
        yield text
