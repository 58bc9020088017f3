"""The rules a training pair has to pass, each on its own, and what they say of a chunk of rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple
from unicodedata import digit

import numpy as np
import regex

from kformer.errors import InputError
from kformer.normal_form import normal_form
from training.config import CleaningConfig
from training.data.report import EXAMPLES, Dropped, Example, Report
from training.data.rows import Row
from training.data.seen import text_hash

VERSION = 1
"""Of the rules: a change of what they let pass makes kept corpora be made anew."""

MALFORMED = "malformed"
EMPTY_SIDE = "with an empty side"
EMPTY_LINE = "empty"

Rule = Callable[[str, str], bool]
"""Whether a pair of source and target is to be left out."""

# Sides as short as this may differ by any factor: "No." is "Keinesfalls.".
_SHORT = 10
_LETTER = regex.compile(r"\p{L}")
# A percent sign within a word or after a number is no placeholder: "100% done".
_PLACEHOLDER = re.compile(
    r"""\{[^{}\s]*\}              # {}, {0}, {name}; of {{name}} and ${name} the inner part
      | %\(\w+\)[sdf]             # %(name)s
      | (?<![\w%])%(?:\d+\$)?[-+0\#]?\d*(?:\.\d+)?(?:l{0,2}[dioufxXeEgG]|[scp@])(?!\w)
      | (?<![\w%])%\d+            # %1
      | </?[A-Za-z][^<>]*>        # <b>, </b>, <br/>
      | &(?:[A-Za-z][a-z]+\d*|\#\w+);  # &amp;, but not R&D;
      | \\[nrt]                   # \n as two characters
    """,
    re.VERBOSE,
)
# Marks that group digits or begin decimals differ between languages: 1,000.5 is 1.000,5.
_WITHIN_NUMBER = re.compile(r"(?<=\d)[.,'’٫٬ ](?=\d)")
_NUMBER = re.compile(r"\d+")


def row_rules(config: CleaningConfig) -> dict[str, Rule]:
    """The rules that look at one pair of texts in normal form, by what they leave out.

    Raises:
        InputError: a script that Unicode does not know.
    """
    rules: dict[str, Rule] = {}
    if (limit := config.max_characters) is not None:
        rules[f"too long (over {limit} characters)"] = lambda s, t: len(s) > limit or len(t) > limit
    if config.identical:
        rules["with identical sides"] = lambda s, t: s == t
    if (ratio := config.max_length_ratio) is not None:
        rules[f"with a length ratio over {ratio:g}"] = lambda s, t: _length_ratio(s, t) > ratio
    if (share := config.max_symbols) is not None:
        symbol = regex.compile(r"[\p{P}\p{S}\p{N}]")
        rules[f"over {share:.0%} punctuation and digits"] = lambda s, t: (
            _share(symbol, s) > share or _share(symbol, t) > share
        )
    for side, scripts in (("source", config.source_script), ("target", config.target_script)):
        if scripts is not None:
            names = [scripts] if isinstance(scripts, str) else scripts
            letters = _letters_of(names, f"cleaning.{side}_script")
            rules[f"with a {side} not in {' or '.join(names)}"] = _other_script(
                letters, config.min_script, side == "source"
            )
    if config.numbers:
        rules["with different numbers"] = lambda s, t: _numbers(s) != _numbers(t)
    if config.placeholders:
        rules["with different placeholders"] = lambda s, t: _placeholders(s) != _placeholders(t)
    return rules


def line_rules(config: CleaningConfig) -> dict[str, Rule]:
    """Those rules that look at the text itself, for text without a source.

    They are given a line as both sides: what compares sides then has nothing to find.

    Raises:
        InputError: as `row_rules`.
    """
    return row_rules(replace(config, identical=False, source_script=None))


class Chunk(NamedTuple):
    """Rows of one file, in order.

    Args:
        where: the file and what its rows are called, such as "train.tsv, line".
        rows: what is there.
    """

    where: str
    rows: list[Row]


class Cleaned(NamedTuple):
    """What is left of a chunk.

    Args:
        where: as of the chunk.
        places: the line of each pair, int64 (pairs,).
        lines: the pairs as lines of UTF-8 TSV.
        pairs, sources: hashes of the pairs and of their sources, uint64 (pairs,), of lines of one
            language of the lines themselves. Sources that differ only in case or white space have
            one hash.
        report: what became of the rows.
    """

    where: str
    places: np.ndarray
    lines: list[bytes]
    pairs: np.ndarray
    sources: np.ndarray
    report: Report

    def without(self, left_out: np.ndarray, reason: str) -> "Cleaned":
        """The same less some pairs, bool (pairs,), which its report counts."""
        if not left_out.any():
            return self
        examples = []
        for i in np.flatnonzero(left_out)[:EXAMPLES]:
            pair = self.lines[i].decode().rstrip("\n").split("\t")
            examples.append(Example.of(f"{self.where} {self.places[i]}", *pair))
        report = Report()
        report.add(self.report)
        report.kept -= int(left_out.sum())
        report.add(Report(dropped={reason: Dropped(int(left_out.sum()), examples)}))
        kept = ~left_out
        return Cleaned(
            self.where,
            self.places[kept],
            [line for line, keep in zip(self.lines, kept, strict=True) if keep],
            self.pairs[kept],
            self.sources[kept],
            report,
        )


@dataclass(frozen=True)
class Cleaner:
    """Brings texts into normal form and leaves out what breaks a rule; picklable.

    Args:
        config: the rules; None applies none but that both sides must hold text.
        strict: whether a row without two texts is an error.
        of_lines: whether rows are lines of one language: targets without a source.
    """

    config: CleaningConfig | None
    strict: bool = False
    of_lines: bool = False

    def __post_init__(self):
        self()  # A wrong setting is told here, not from a process.

    def __call__(self) -> Callable[[Chunk], Cleaned]:
        """The function that cleans a chunk.

        It raises InputError, naming file and line, at a row without two texts if `strict`.
        """
        kind = line_rules if self.of_lines else row_rules
        rules = kind(self.config) if self.config else {}
        return lambda chunk: self._clean(chunk, rules)

    def _clean(self, chunk: Chunk, rules: dict[str, Rule]) -> Cleaned:
        report = Report()
        places, lines, pairs, sources = [], [], [], []
        for row in chunk.rows:
            if row.target is None:
                self._leave_out(MALFORMED, chunk.where, row, report)
                continue
            source, target = normal_form(row.source), normal_form(row.target)
            # What a rule looks at, and what a pair is known by.
            known = target if self.of_lines else source
            if not known or not target:
                empty = EMPTY_LINE if self.of_lines else EMPTY_SIDE
                self._leave_out(empty, chunk.where, row, report)
                continue
            broken = next((name for name, rule in rules.items() if rule(known, target)), None)
            if broken is not None:
                report.drop(broken, Example.of(f"{chunk.where} {row.line}", source, target))
                continue
            line = f"{source}\t{target}"
            places.append(row.line)
            lines.append(f"{line}\n".encode())
            pairs.append(text_hash(line))
            sources.append(source_hash(known))
        report.kept = len(lines)
        return Cleaned(
            chunk.where,
            np.array(places, np.int64),
            lines,
            np.array(pairs, np.uint64),
            np.array(sources, np.uint64),
            report,
        )

    def _leave_out(self, reason: str, where: str, row: Row, report: Report) -> None:
        if self.strict:
            raise InputError(
                f"{where} {row.line}: {reason} ({row.source[:60]!r}). "
                "Mend the row, or leave such rows out: data.strict false"
            )
        report.drop(reason, Example.of(f"{where} {row.line}", row.source, row.target))


def source_hash(source: str) -> int:
    """The hash of a source in normal form, whatever its case and the width of its spaces."""
    return text_hash(" ".join(source.casefold().split()))


def _length_ratio(source: str, target: str) -> float:
    shorter, longer = sorted((len(source), len(target)))
    return longer / max(shorter, _SHORT)


def _share(pattern: regex.Pattern, text: str) -> float:
    """The share of a text's characters, spaces aside, that a pattern matches."""
    return len(pattern.findall(text)) / (len(text) - text.count(" "))


def _letters_of(scripts: list[str], key: str) -> regex.Pattern:
    for name in scripts:
        try:
            if not name.isidentifier():
                raise regex.error("")
            regex.compile(rf"\p{{Script={name}}}")
        except regex.error as error:
            raise InputError(
                f"{key} must name scripts of Unicode, such as Latin, Cyrillic or Han. "
                f"Received: {name!r}"
            ) from error
    return regex.compile("[" + "".join(rf"\p{{Script={name}}}" for name in scripts) + "]")


def _other_script(script: regex.Pattern, min_share: float, of_source: bool) -> Rule:
    def is_other(source: str, target: str) -> bool:
        letters = _LETTER.findall(source if of_source else target)
        return sum(map(bool, map(script.match, letters))) < min_share * len(letters)

    return is_other


def _numbers(text: str) -> list[str]:
    """The numbers in a text, sorted, however their digits are grouped and written."""
    numbers = _NUMBER.findall(_WITHIN_NUMBER.sub("", text))
    # Not int(): it refuses what has thousands of digits.
    return sorted("".join(str(digit(d)) for d in number).lstrip("0") for number in numbers)


def _placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))
