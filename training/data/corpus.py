"""A corpus read once: cleaned, in three parts, as text files."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kformer.errors import InputError
from training.config import CleaningConfig, DataConfig
from training.data.cleaning import MALFORMED, Chunk, Cleaned, Cleaner
from training.data.parallel import in_chunks, in_processes
from training.data.progress import shown
from training.data.reading.names import Names
from training.data.reading.pairs import rows_of
from training.data.reading.sources import PAIR_CHOICES, Source, embedded_corpora, resolve
from training.data.report import EXAMPLES, Report, shortened
from training.data.rows import Pair, Row
from training.data.seen import SeenHashes
from training.data.splits import PARTS, Part, Split

# Formats whose sides have names.
_NAMED = ("json", "ndjson", "tmx")


class Sources(NamedTuple):
    """Where the parts of a corpus are read from; None: cut from train."""

    train: list[Source]
    valid: list[Source] | None
    test: list[Source] | None

    @property
    def of_lines(self) -> bool:
        """Whether they hold lines of one language; else pairs."""
        return self.train[0].parts[0].of_lines


@dataclass
class CorpusReport:
    """What cleaning made of a corpus.

    Args:
        pairs: how many pairs each part has.
        corpora: what became of the rows of each corpus that training text was read from.
        corpus_pairs: how many training pairs are from each of them, in their order.
        given: what became of the rows of given validation and test text.
        in_train: how many of their pairs have a source that training text has too, before
            cleaning took it out.
        in_train_examples: some of these sources.
        test_in_valid: how many pairs of given test text have a source that given validation text
            has too.
    """

    pairs: dict[Part, int] = field(default_factory=dict)
    corpora: dict[str, Report] = field(default_factory=dict)
    corpus_pairs: list[int] = field(default_factory=list)
    given: dict[Part, Report] = field(default_factory=dict)
    in_train: dict[Part, int] = field(default_factory=dict)
    in_train_examples: dict[Part, list[str]] = field(default_factory=dict)
    test_in_valid: int = 0


class CleanCorpus:
    """A folder of `train.tsv`, `valid.tsv` and `test.tsv`, and of `report.json` about them.

    The texts are in normal form, one pair a line, in the order of the corpus.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def text(self, part: Part) -> Path:
        return self.folder / f"{part}.tsv"

    def pairs(self, part: Part) -> Iterator[Pair]:
        """The pairs of a part; memory does not grow with their number."""
        with self.text(part).open("rb") as lines:
            for line in lines:
                yield _pair(line)

    @property
    def report(self) -> CorpusReport:
        content = json.loads((self.folder / "report.json").read_text("utf-8"))
        for key in ("corpora", "given"):
            content[key] = {name: Report.from_dict(report) for name, report in content[key].items()}
        return CorpusReport(**content)


def find_sources(data: DataConfig, lines_too: bool = False) -> Sources:
    """Where the parts of a corpus are read from.

    Args:
        data: names them.
        lines_too: whether all of them may be lines of one language in place of pairs.

    Raises:
        InputError: a name means nothing that can be read, or not what the others are.
    """
    names = Names(data.source_key, data.target_key)
    embedded = {name.rpartition("/")[0] for name in embedded_corpora()}
    specs = {
        part: [spec] if isinstance(spec, str) else spec
        for part, spec in (("train", data.train), ("valid", data.valid), ("test", data.test))
    }
    if len(specs["train"]) == 1 and specs["train"][0] in embedded:
        # It comes in three parts.
        for part in ("valid", "test"):
            specs[part] = specs[part] or [f"{specs['train'][0]}/{part}"]
    specs["train"] = [f"{name}/train" if name in embedded else name for name in specs["train"]]
    if len(set(specs["train"])) < len(specs["train"]):
        raise InputError(
            "data.train must name each corpus once (data.weights repeats them). "
            f"Received: {specs['train']}"
        )
    sources = Sources(
        *(specs[part] and [resolve(name, names) for name in specs[part]] for part in PARTS)
    )
    for source in chain.from_iterable(part for part in sources if part):
        if not lines_too:
            _refuse_lines(source, "only model.kind language_model is trained on")
        for part in source.parts:
            if part.of_lines != sources.of_lines:
                raise InputError(
                    f"{part.name}: lines of one language (.txt) and pairs cannot be mixed; "
                    f"data.train begins with {sources.train[0].parts[0].name}"
                )
    return sources


def clean_corpus(
    sources: Sources, cleaning: CleaningConfig, strict: bool, folder: Path
) -> CleanCorpus:
    """Reads a corpus, cleans it and writes its three parts into an empty folder.

    Each rule is applied to the training text alone. What is not given for validation or test is
    cut from that by the hash of the source.

    Args:
        sources: where the parts are read from.
        cleaning: the rules.
        strict: whether rows that are malformed or have an empty side are errors.
        folder: where the files go.

    Raises:
        InputError: text cannot be read, or nothing is left of a part.
    """
    cleaner = Cleaner(cleaning, strict, sources.of_lines)
    report = CorpusReport()
    corpus = CleanCorpus(folder)
    held_out = {
        part: _write_given(part, sources, strict, corpus, report)
        for part in ("valid", "test")
        if getattr(sources, part) is not None
    }
    if len(held_out) == 2:
        report.test_in_valid = int(np.isin(held_out["test"], held_out["valid"]).sum())
    hashes = _write_train(sources, cleaner, held_out, corpus, report)
    to_cut = [part for part in ("valid", "test") if part not in held_out]
    if to_cut:
        _cut(to_cut, hashes, corpus, report)
    else:
        report.pairs["train"] = len(hashes)
    # In ASCII: names of files may have no other spelling.
    content = json.dumps(asdict(report), indent=1)
    (folder / "report.json").write_text(content + "\n", "utf-8")
    return corpus


def read_pairs(spec: str, names: Names = Names()) -> Iterator[Pair]:  # noqa: B008
    """The pairs of a corpus, their texts in normal form, rows without two texts left out.

    Args:
        spec: as `resolve` takes it.
        names: of the sides, where the format names them.

    Raises:
        InputError: at once if `spec` names nothing that can be read; while reading if the text
            is damaged or holds no pair.
    """
    source = resolve(spec, names)
    _refuse_lines(source, "have no translation")
    chunks = _clean([source], Cleaner(None), workers=1)
    return chain.from_iterable(map(_pairs_of, chunks))


def read_lines(spec: str) -> Iterator[str]:
    """The lines of a text in one language, in normal form, empty ones left out.

    Args:
        spec: as `resolve` takes it.

    Raises:
        InputError: at once if `spec` names nothing of the kind; while reading if the text is
            damaged or holds no line.
    """
    source = resolve(spec)
    if not all(part.of_lines for part in source.parts):
        raise InputError(f"{spec}: give lines of one language, in a file that ends in .txt")
    chunks = _clean([source], Cleaner(None, of_lines=True), workers=1)
    return (pair.target for pair in chain.from_iterable(map(_pairs_of, chunks)))


def clean_pairs(
    pairs: Iterable[Any],
    cleaning: CleaningConfig = CleaningConfig(),  # noqa: B008
    report: Report | None = None,
) -> Iterator[Pair]:
    """The pairs of any iterable that pass the rules, their texts in normal form.

    Args:
        pairs: tuples of source and target, or mappings with these keys; read once.
        cleaning: the rules; there is no held-out text to compare with.
        report: counts what becomes of the pairs.

    Raises:
        InputError: something in `pairs` is no pair of strings.
    """
    chunks = (Chunk("pair", rows) for rows in in_chunks(rows_of(pairs), _length))
    cleaned = in_processes(Cleaner(cleaning), chunks, workers=1)
    for chunk in _without_repetitions(cleaned, cleaning.duplicates, SeenHashes()):
        if report is not None:
            report.add(chunk.report)
        yield from _pairs_of(chunk)


def _refuse_lines(source: Source, why: str) -> None:
    for part in source.parts:
        if part.of_lines:
            raise InputError(
                f"{part.name}: holds lines of one language (.txt), which {why}. Pairs are "
                f"{PAIR_CHOICES}; name tab-separated text .tsv"
            )


def _pairs_of(chunk: Cleaned) -> Iterator[Pair]:
    return map(_pair, chunk.lines)


def _pair(line: bytes) -> Pair:
    return Pair(*line[:-1].decode().split("\t"))


def _clean(
    sources: Sequence[Source], cleaner: Cleaner, workers: int | None = None
) -> Iterator[Cleaned]:
    """The chunks of all sources; refuses text that holds no pair at all, once it is read."""
    name = ", ".join(source.name for source in sources)
    chunks = (
        Chunk(f"{part.name}, {part.unit}", rows)
        for source in sources
        for part in source.parts
        for rows in in_chunks(part.rows(), _length)
    )
    report = Report()
    for chunk in in_processes(cleaner, chunks, workers):
        yield chunk
        report.add(chunk.report)
    if report.seen == 0:
        raise InputError(f"{name}: is empty; a corpus needs at least one pair or line")
    if report.kept == 0:
        named = report.dropped.keys() == {MALFORMED} and any(
            file.name.partition(".")[2].startswith(_NAMED) for s in sources for file in s.files
        )
        hint = "; name the sides: data.source_key, data.target_key" if named else ""
        what = "line" if cleaner.of_lines else "pair"
        raise InputError(f"{name}: holds no usable {what}: {report}{hint}")


def _write_given(
    part: Part, sources: Sources, strict: bool, corpus: CleanCorpus, report: CorpusReport
) -> np.ndarray:
    """Writes validation or test text; returns the hashes of its sources, uint64 (pairs,)."""
    report.given[part] = Report()
    hashes = []
    with corpus.text(part).open("wb") as file:
        for chunk in shown(
            _clean(getattr(sources, part), Cleaner(None, strict, sources.of_lines)),
            f"reading {part}",
            _rows,
        ):
            file.writelines(chunk.lines)
            hashes.append(chunk.sources)
            report.given[part].add(chunk.report)
    report.pairs[part] = report.given[part].kept
    return np.concatenate(hashes)


def _write_train(
    sources: Sources,
    cleaner: Cleaner,
    held_out: dict[Part, np.ndarray],
    corpus: CleanCorpus,
    report: CorpusReport,
) -> np.ndarray:
    """Writes all training text; returns the hashes of its sources, uint64 (pairs,)."""
    seen, found = SeenHashes(), SeenHashes()
    hashes = []
    with corpus.text("train").open("wb") as file:
        for source in sources.train:
            counts = report.corpora[source.name] = Report()
            chunks = _clean([source], cleaner)
            chunks = _without_repetitions(chunks, cleaner.config.duplicates, seen)
            chunks = _without_held_out(chunks, held_out, found, cleaner.config.held_out)
            for chunk in shown(chunks, f"reading {source.name}", _rows):
                file.writelines(chunk.lines)
                hashes.append(chunk.sources)
                counts.add(chunk.report)
            report.corpus_pairs.append(counts.kept)
    if not sum(report.corpus_pairs):
        reports = "; ".join(f"{name}: {counts}" for name, counts in report.corpora.items())
        raise InputError(f"no training pair is left. {reports}")
    for part, own in held_out.items():
        overlap = found.holds(own)
        report.in_train[part] = int(overlap.sum())
        report.in_train_examples[part] = _sources_at(
            corpus.text(part), np.flatnonzero(overlap)[:EXAMPLES]
        )
    return np.concatenate(hashes)


def _without_repetitions(
    chunks: Iterable[Cleaned], duplicates: str, seen: SeenHashes
) -> Iterator[Cleaned]:
    for chunk in chunks:
        if duplicates == "pair":
            chunk = chunk.without(~seen.add(chunk.pairs), "repeated")
        elif duplicates == "source":
            chunk = chunk.without(~seen.add(chunk.sources), "with a repeated source")
        yield chunk


def _without_held_out(
    chunks: Iterable[Cleaned],
    held_out: dict[Part, np.ndarray],
    found: SeenHashes,
    leave_out: bool,
) -> Iterator[Cleaned]:
    """Notes in `found` what is in the held-out text as well."""
    own = SeenHashes()
    for hashes in held_out.values():
        own.add(hashes)
    for chunk in chunks:
        overlap = own.holds(chunk.sources)
        found.add(chunk.sources[overlap])
        if leave_out:
            chunk = chunk.without(overlap, "also in validation or test")
        yield chunk


def _cut(to_cut: list[Part], hashes: np.ndarray, corpus: CleanCorpus, report: CorpusReport) -> None:
    """Moves what is held out from the training text to files of its own."""
    split = Split.of(hashes)
    parts = np.zeros(len(hashes), np.int8)
    for part in to_cut:
        parts[split.select(part, hashes)] = PARTS.index(part)
    whole = corpus.folder / "whole.tsv"
    corpus.text("train").rename(whole)
    with ExitStack() as opened:
        lines = opened.enter_context(whole.open("rb"))
        files = [
            opened.enter_context(corpus.text(part).open("wb"))
            if part in {"train", *to_cut}
            else None
            for part in PARTS
        ]
        for part, line in zip(parts.tolist(), lines, strict=True):
            files[part].write(line)
    whole.unlink()
    for part in ("train", *to_cut):
        report.pairs[part] = int((parts == PARTS.index(part)).sum())
    ends = np.cumsum(report.corpus_pairs)
    report.corpus_pairs = [int((own == 0).sum()) for own in np.split(parts, ends[:-1])]


def _sources_at(text: Path, lines: np.ndarray) -> list[str]:
    """The sources in some lines of a file, counted from 0; of lines without one the targets."""
    wanted = set(lines.tolist())
    with text.open("rb") as file:
        pairs = [_pair(line) for number, line in enumerate(file) if number in wanted]
    return [shortened(pair.source or pair.target) for pair in pairs]


def _length(row: Row) -> int:
    return len(row.source) + len(row.target or "")


def _rows(chunk: Cleaned) -> int:
    return chunk.report.seen
