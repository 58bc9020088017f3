"""What became of the rows of a corpus: counted by reason, with examples to look at."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

EXAMPLES = 3
"""How many rows are shown for each reason."""
_SHOWN = 160


class Example(NamedTuple):
    """A row that was left out, and where it stands."""

    place: str
    source: str
    target: str

    @classmethod
    def of(cls, place: str, source: str, target: str | None) -> Self:
        """An example of bounded size: a line gone wrong may have megabytes."""
        return cls(place, shortened(source), shortened(target or ""))

    def __str__(self) -> str:
        source = f"{self.source!r} -> " if self.source else ""
        return f"{self.place}: {source}{self.target!r}"


@dataclass
class Dropped:
    """Rows left out for one reason: how many, and the first of them."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "Dropped") -> None:
        self.count += other.count
        self.examples += other.examples[: EXAMPLES - len(self.examples)]


@dataclass
class Report:
    """What became of the rows that went in: `seen == kept + sum of dropped`.

    Args:
        kept: Pairs passed on.
        dropped: What was left out, by reason.
    """

    kept: int = 0
    dropped: dict[str, Dropped] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        return self.kept + sum(dropped.count for dropped in self.dropped.values())

    def drop(self, reason: str, example: Example) -> None:
        """Counts one row left out."""
        self.add(Report(dropped={reason: Dropped(1, [example])}))

    def add(self, other: "Report") -> None:
        """Counts what happened after this, the examples of both in their order."""
        self.kept += other.kept
        for reason, dropped in other.dropped.items():
            self.dropped.setdefault(reason, Dropped()).add(dropped)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        dropped = {
            reason: Dropped(fields["count"], [Example(*example) for example in fields["examples"]])
            for reason, fields in content["dropped"].items()
        }
        return cls(content["kept"], dropped)

    def __str__(self) -> str:
        return self.in_short()

    def in_short(self, unit: str = "pairs") -> str:
        """On one line; `unit` is what is kept."""
        reasons = ", ".join(
            f"{dropped.count:,} {reason}" for reason, dropped in self._most_common()
        )
        counts = f"{self.seen:,} rows, {self.kept:,} {unit} kept"
        return f"{counts}; left out: {reasons}" if reasons else counts

    def explained(self, unit: str = "pairs") -> str:
        """A line for each reason, each with its examples below."""
        lines = [f"{self.seen:,} rows, {self.kept:,} {unit} kept"]
        for reason, dropped in self._most_common():
            lines.append(f"  {dropped.count:,} {reason} ({dropped.count / self.seen:.2%})")
            lines += [f"    {example}" for example in dropped.examples]
        return "\n".join(lines)

    def _most_common(self) -> list[tuple[str, Dropped]]:
        return sorted(self.dropped.items(), key=lambda item: -item[1].count)


def shortened(text: str) -> str:
    """The beginning of a text, as much as is shown of it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
