"""The three parts of a corpus: given each, or held out from the training text."""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from training.data.corpus import (
    CorpusReport,
    Pair,
    Split,
    embedded_corpora,
    read_pairs,
    split_pairs,
)

Part = Literal["train", "valid", "test"]


class Corpus:
    """Training, validation and test pairs.

    Args:
        train: what `read_pairs` takes, or the name of an embedded corpus, which has all three.
        valid: likewise; None: that of the embedded corpus, or cut from `train` by hash.
        test: as `valid`.
    """

    def __init__(self, train: str, valid: str | None = None, test: str | None = None):
        embedded = {name.rpartition("/")[0] for name in embedded_corpora()}
        if train in embedded:
            valid, test = valid or f"{train}/valid", test or f"{train}/test"
            train = f"{train}/train"
        self.specs: dict[Part, str | None] = {"train": train, "valid": valid, "test": test}

    def pairs(self, part: Part, report: CorpusReport | None = None) -> Iterator[Pair]:
        """The pairs of a part, read anew; see `read_pairs` for `report` and errors."""
        if self.specs[part] is None:
            return self._select(report, part)
        given = [name for name, spec in self.specs.items() if spec is not None]
        if part != "train" or len(given) == len(self.specs):
            return read_pairs(self.specs[part], report)
        # What is given elsewhere need not be held out: it stays in training.
        return self._select(report, *given)

    def _select(self, report: CorpusReport | None, *parts: Part) -> Iterator[Pair]:
        report = CorpusReport() if report is None else report
        for pair in read_pairs(self.specs["train"], report):
            if self._split.part(pair.source) in parts:
                yield pair
            else:
                report.kept -= 1  # Another part's report has it.

    @cached_property
    def _split(self) -> Split:
        return split_pairs(read_pairs(self.specs["train"]))
