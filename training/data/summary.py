"""What was made of a corpus, told to its reader."""

from collections.abc import Iterator

from training.config import Config
from training.data.corpus import CorpusReport
from training.data.prepare import PreparedText
from training.data.splits import Part
from training.data.store import SideStats, StoreMeta


def summary(config: Config, prepared: PreparedText) -> str:
    """The corpus and the vocabulary in a few lines, as a training run shows them."""
    report, meta = prepared.corpus.report, prepared.train.meta
    unit = _unit(meta)
    texts = [f"{name}: {counts.in_short(unit)}" for name, counts in report.corpora.items()]
    texts += [f"{part}: {counts.in_short(unit)}" for part, counts in report.given.items()]
    texts += _warnings(config, report)
    lines = [f"corpus      {texts[0]}", *(f"            {text}" for text in texts[1:])]
    long = "".join(f", {d.count:,} {reason}" for reason, d in meta.report.dropped.items())
    lines += [
        f"train       {meta.pairs:,} {unit}, {_tokens(meta)}{long and '; left out: ' + long[2:]}",
        f"held out    {report.pairs['valid']:,} {unit} for validation, {report.pairs['test']:,} "
        f"for the test{_unscored(prepared)}",
        f"vocabulary  {_sizes(config, prepared)}",
        *(f"  {side:<6}    {_rates(stats)}" for side, stats in _sides(meta)),
        *(f"  {warning}" for warning in _unknown(meta)),
        f"kept in     {prepared.folder}{', made before' if prepared.reused else ''}",
    ]
    return "\n".join(lines)


def explained(config: Config, prepared: PreparedText) -> str:
    """All that is known of the corpus, with examples of what was left out."""
    report, meta = prepared.corpus.report, prepared.train.meta
    unit = _unit(meta)
    lines = []
    for name, counts in report.corpora.items():
        lines += [f"{name}: {counts.explained(unit)}"]
    for part, counts in report.given.items():
        lines += [f"{part}: {counts.explained(unit)}"]
    for part in ("valid", "test"):
        if part not in report.given:
            lines.append(f"{part}: {report.pairs[part]:,} {unit}, cut from the training text")
    lines += _warnings(config, report)
    if len(meta.corpus_pairs) > 1:
        weights = config.data.weights or [1.0] * len(meta.corpus_pairs)
        for name, pairs, weight in zip(report.corpora, meta.corpus_pairs, weights, strict=True):
            lines.append(f"an epoch sees {round(weight * pairs):,} {unit} of {name}")
    if unscored := _unscored(prepared):
        lines.append(unscored.removeprefix("; "))
    lines += ["", f"vocabulary: {_sizes(config, prepared)}"]
    for side, stats in _sides(meta):
        lines += [f"{side}: {_rates(stats)}"]
        lines += [f"  longest: {tokens:,} tokens, {text!r}" for tokens, text in stats.longest]
    lines += _unknown(meta)
    lines += [
        "",
        f"tokenised: {meta.report.explained(unit)}",
        f"  {_tokens(meta)}",
    ]
    return "\n".join(lines)


_MANY_UNKNOWN = 0.05


def _warnings(config: Config, report: CorpusReport) -> Iterator[str]:
    for part, count in report.in_train.items():
        if count:
            what = "left out of it" if config.cleaning.held_out else "kept in it"
            examples = ", ".join(map(repr, report.in_train_examples[part]))
            yield (
                f"warning: {count:,} of {report.pairs[part]:,} {_NAMES[part]} sentences occur in "
                f"the training text and were {what}: {examples}"
            )
    if report.test_in_valid:
        yield (
            f"warning: {report.test_in_valid:,} of {report.pairs['test']:,} test sentences occur "
            "in the validation text: a model chosen by them is not tested by them"
        )


def _unknown(meta: StoreMeta) -> Iterator[str]:
    for side, stats in _sides(meta):
        share = stats.unknown / max(stats.tokens, 1)
        if share > _MANY_UNKNOWN:
            yield (
                f"warning: {share:.0%} of the {side}'s tokens are unknown to the vocabulary: is it "
                "that of another language, or too small?"
            )


def _unscored(prepared: PreparedText) -> str:
    dropped = prepared.valid.meta.report.dropped
    reasons = "".join(f", {d.count:,} {reason}" for reason, d in dropped.items())
    return f"; not in the validation loss:{reasons[1:]}" if reasons else ""


_NAMES: dict[Part, str] = {"valid": "validation", "test": "test"}


def _sizes(config: Config, prepared: PreparedText) -> str:
    source, target = prepared.load_encoders()
    kind = config.tokenizer.file or config.tokenizer.kind
    if source is target:
        return f"{source.vocab_size:,} joint pieces, {kind}"
    return f"{source.vocab_size:,} source and {target.vocab_size:,} target pieces, {kind}"


def _unit(meta: StoreMeta) -> str:
    return "lines" if meta.of_lines else "pairs"


def _tokens(meta: StoreMeta) -> str:
    if meta.of_lines:
        return f"{meta.target_tokens:,} tokens"
    return f"{meta.source_tokens:,} source and {meta.target_tokens:,} target tokens"


def _sides(meta: StoreMeta) -> list[tuple[str, SideStats]]:
    if meta.of_lines:
        return [("text", meta.target)]
    return [("source", meta.source), ("target", meta.target)]


def _rates(stats: SideStats) -> str:
    tokens = max(stats.tokens, 1)
    return (
        f"{stats.tokens / max(stats.words, 1):.2f} tokens a word, "
        f"{stats.characters / tokens:.2f} characters a token, "
        f"unknown {stats.unknown / tokens:.2%}, bytes {stats.bytes / tokens:.2%}, "
        f"longest {stats.longest[0][0]:,} tokens"
    )
