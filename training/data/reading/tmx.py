"""TMX, the exchange format of translation memories."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from kformer.errors import InputError
from training.data.reading.compression import head, opened
from training.data.reading.names import Names
from training.data.reading.texts import malformed, one_line
from training.data.rows import Row

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements that hold code of the document instead of text; a <sub> in them is text again.
_CODE = frozenset(["bpt", "ept", "it", "ph", "ut"])
_DEPTH = 100


class _Unit(NamedTuple):
    """A translation unit: the language the file was translated from, and texts by language."""

    header_language: str
    texts: dict[str, str]


def tmx_rows(path: Path, names: Names) -> Iterator[Row]:
    """Rows of a TMX file, one for each translation unit, numbered from 1.

    A unit that lacks a side is malformed.

    Args:
        path: The file.
        names: The languages, in any case; `en` also takes `en-US`. If one is None, the first unit
            with two languages decides: the source is that of the header, or else the first, and
            the target is the other one.

    Raises:
        InputError: While reading: the file cannot be read, is not XML or not TMX, or a unit has
            other languages than two when the names are needed.
    """
    wanted = None
    if names.source and names.target:
        wanted = _normal(names.source), _normal(names.target)
    for number, (header_language, texts) in enumerate(_units(path), 1):
        if not (names.source and names.target) and len(texts) > 1:
            if wanted is None and len(texts) == 2:
                wanted = _chosen(list(texts), header_language, names)
            if len(texts) > 2 or wanted is None or None in _found(texts, wanted):
                before = f" after units in {' and '.join(wanted)}" if wanted else ""
                raise InputError(
                    f"{path}, unit {number}: is in {', '.join(texts)}{before}; name two: "
                    "data.source_key, data.target_key. "
                    f"Received: {names.source} and {names.target}"
                )
        source, target = _found(texts, wanted) if wanted else (None, None)
        if source is None or target is None:
            shown = " | ".join(f"{language}: {text}" for language, text in texts.items())
            yield malformed(number, shown)
        else:
            yield Row(number, one_line(source), one_line(target))


def _normal(language: str) -> str:
    return language.strip().lower().replace("_", "-")


def _matching(languages: list[str], wanted: str) -> str | None:
    """The language itself, or else the first that is a form of it."""
    if wanted in languages:
        return wanted
    return next((one for one in languages if one.startswith(wanted + "-")), None)


def _found(texts: dict[str, str], wanted: tuple[str, str]) -> tuple[str | None, str | None]:
    source, target = (_matching(list(texts), language) for language in wanted)
    return texts.get(source), texts.get(target)


def _chosen(languages: list[str], header_language: str, names: Names) -> tuple[str, str] | None:
    """Which of two languages is the source and which the target."""
    if names.target:
        target = _matching(languages, _normal(names.target))
        source = next((one for one in languages if one != target), None)
    else:
        named = _normal(names.source or header_language)
        source = _matching(languages, named)
        if source is None and not names.source:
            # A header in "en-GB" over units in "en"; or one that names no language, "*all*".
            source = _matching(languages, named.partition("-")[0]) or languages[0]
        target = next((one for one in languages if one != source), None)
    if source is None or target is None:
        return None
    # Units may differ in the country; between two countries' forms of a language it matters.
    bare = source.partition("-")[0], target.partition("-")[0]
    return (source, target) if bare[0] == bare[1] else bare


def _units(path: Path) -> Iterator[_Unit]:
    head(path)  # names compressed data
    with opened(path) as file:
        # Expat neither fetches what a document points to nor lets entities multiply without end.
        events = ElementTree.iterparse(file, ("start", "end"))
        above: list[ElementTree.Element] = []
        header_language, in_unit = "", 0
        while (event := _next(path, events)) is not None:
            kind, element = event
            name = _local(element)
            if kind == "start":
                if not above and name != "tmx":
                    raise InputError(f"{path}: not TMX; its outermost element is <{name[:50]}>")
                if len(above) == _DEPTH:
                    raise InputError(f"{path}: not TMX; elements stand in each other {_DEPTH} deep")
                above.append(element)
                in_unit += name == "tu"
                if name == "header":
                    header_language = element.get("srclang", "")
                continue
            above.pop()
            if name == "tu":
                in_unit -= 1
                yield _Unit(header_language, _texts(element))
            if not in_unit and above:
                # What has been read is let go of, so that memory does not grow with the file.
                above[-1].remove(element)


def _next(path: Path, events: Iterator) -> tuple[str, ElementTree.Element] | None:
    try:
        return next(events, None)
    except ElementTree.ParseError as error:
        what = str(error).partition(": line ")[0]
        raise InputError(f"{path}, line {error.position[0]}: not whole XML ({what})") from None
    except (ValueError, LookupError) as error:
        raise InputError(f"{path}: its encoding cannot be read ({error}); use UTF-8") from None


def _texts(unit: ElementTree.Element) -> dict[str, str]:
    texts: dict[str, str] = {}
    for variant in unit:
        segment = next((child for child in variant if _local(child) == "seg"), None)
        if _local(variant) == "tuv" and segment is not None:
            # TMX before 1.4 had an attribute of its own.
            language = _normal(variant.get(_LANGUAGE) or variant.get("lang") or "")
            texts.setdefault(language, "".join(_pieces(segment, in_code=False)))
    return texts


def _pieces(element: ElementTree.Element, in_code: bool) -> Iterator[str]:
    name = _local(element)
    in_code = name in _CODE or (in_code and name != "sub")
    if not in_code:
        yield element.text or ""
    for child in element:
        yield from _pieces(child, in_code)
        if not in_code:
            yield child.tail or ""


def _local(element: ElementTree.Element) -> str:
    """The name without the namespace that some writers give it."""
    return element.tag.rpartition("}")[2]
