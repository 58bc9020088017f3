"""Translate text with a trained model: `python -m kformer.translate RUN [FILE]`."""

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from itertools import repeat, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from kformer import plots
from kformer.command_line import leave, run_command
from kformer.errors import InputError
from kformer.lines import as_they_come, in_lists, open_text, read_lines
from kformer.quiet import import_tensorflow
from kformer.search_options import (
    add_search_options,
    check_nothing_is_set,
    check_search_options,
    make_graph,
)

if TYPE_CHECKING:
    from kformer.translation import TargetScore, Translation
    from kformer.translator import Translator

# Lines translated at a time: enough to batch well, few enough that output starts early.
_CHUNK = 512


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    options = _parser().parse_intermixed_args(arguments)
    return run_command(lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kformer.translate",
        description="Translate text, one line out for each line in. A blank line stays blank, a "
        "line too long for the model is translated in parts. With --n-best N, N lines stand one "
        "below the other, best first; where there are fewer, blank lines fill up.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "run", metavar="RUN",
        help="run folder, as training.run leaves it, or a version that export.run wrote",
    )  # fmt: skip
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="UTF-8 text; without it standard input is read"
    )
    add_search_options(parser)
    parser.add_argument(
        "--prefix", metavar="FILE", help="a line for each line of text: how its translation begins"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--with-scores", action="store_true", help="the score and a tab before each translation"
    )
    output.add_argument(
        "--with-alignments", action="store_true",
        help="a tab and word links after it, source-target, counted from 0: 0-0 1-2",
    )  # fmt: skip
    output.add_argument(
        "--with-attention", action="store_true",
        help="with --json: how much each token attends to each source token",
    )  # fmt: skip
    output.add_argument(
        "--plot-attention", metavar="PICTURE",
        help="also draw what each layer and head attends to, for the first line: a .png, .pdf or "
        ".svg",
    )  # fmt: skip
    output.add_argument(
        "--json", action="store_true",
        help="a JSON object for each line, with tokens and log-probabilities",
    )  # fmt: skip
    output.add_argument(
        "--score", metavar="REFERENCES",
        help="translate nothing: the log-probability and the perplexity of the translation on the "
        "same line of this file",
    )  # fmt: skip
    speed = parser.add_argument_group("speed and memory")
    speed.add_argument(
        "--max-batch-tokens", type=int, default=4096, metavar="N",
        help="source tokens times hypotheses in work at once (default 4096)",
    )  # fmt: skip
    speed.add_argument(
        "--max-batch-sentences", type=int, metavar="N", help="sentences in work at once"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    check_search_options(options)
    if options.score is not None and options.prefix is not None:
        raise InputError("--score scores what is there, --prefix begins what is new: give one")
    if options.with_attention and not options.json:
        raise InputError("--with-attention is a matrix for each translation: add --json")
    if options.plot_attention is not None:
        plots.check_path(options.plot_attention)
    name = options.file or "standard input"
    beside_name = options.prefix if options.score is None else options.score
    with open_text(options.file) as stream, _beside(beside_name) as beside:
        # Not before the files are known to be there: loading takes seconds.
        import_tensorflow()
        translator = _translator(options)
        _check_attention(options, translator)
        progress = _Progress(options.file)
        lines = _aligned(read_lines(stream, name), beside, name, beside_name)
        done = 0
        lists = in_lists if options.file else as_they_come
        for chunk in lists(lines, _CHUNK):
            output = "".join(
                f"{line}\n" for line in _output(translator, options, chunk, name, done)
            )
            done += len(chunk)
            sys.stdout.buffer.write(output.encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
            progress.show(done)
        progress.close()
        if done == 0 and options.plot_attention is not None:
            raise InputError(f"{name}: has no first line, whose attention could be drawn")
    return 0


def _translator(options: argparse.Namespace) -> "Translator":
    from kformer.run_folder import RunFolder
    from kformer.saved_graph import DESCRIPTION, SavedGraph
    from kformer.translator import Translator

    versions = sorted(Path(options.run).glob(f"[0-9]*/{DESCRIPTION}"))
    if versions:
        raise InputError(f"{options.run}: holds versions; give one, such as {versions[-1].parent}")
    if (Path(options.run) / DESCRIPTION).exists():
        if options.plot_attention is not None:
            raise InputError("--plot-attention: an export tells only a mean; give the run folder")
        check_nothing_is_set(options, "an export has its search; export once more with this")
        graph = SavedGraph(options.run)
        options.n_best = graph.n_best
    else:
        run = RunFolder.open(options.run)
        run.refuse_lines()
        graph = make_graph(*run.load(), options)
    return Translator(
        graph,
        max_batch_tokens=options.max_batch_tokens,
        max_batch_sentences=options.max_batch_sentences,
    )


def _check_attention(options: argparse.Namespace, translator: "Translator") -> None:
    """Refuses options that show attention where the model has none."""
    for name in ("with_alignments", "with_attention", "plot_attention"):
        if getattr(options, name) and not translator.graph.has_attention:
            raise InputError(
                f"--{name.replace('_', '-')}: the model of {options.run} has no attention"
            )


def _output(translator, options, chunk, name, done) -> Iterator[str]:
    """The lines that a chunk of (text, what stands beside it) becomes."""
    from kformer.translator import TextTooLongError

    texts, beside = map(list, zip(*chunk, strict=True))
    pictured = done == 0 and options.plot_attention is not None
    try:
        if options.score is not None:
            scores = translator.score(texts, beside)
            if pictured:
                _plot_attention(translator, texts[0], beside[0], options.plot_attention, name)
            for text, score in zip(texts, scores, strict=True):
                yield _score_json(text, score) if options.json else _score_line(score)
            return
        prefixes = None if options.prefix is None else beside
        found = translator.translate_nbest(
            texts,
            prefixes,
            with_alignments=options.with_alignments or options.with_attention,
        )
        if pictured:
            if found[0].parts > 1:
                raise InputError(
                    f"{name}, line 1: translated in {found[0].parts} parts, each of which attends "
                    "to itself alone; a picture is of one sentence"
                )
            _plot_attention(translator, texts[0], found[0].text, options.plot_attention, name)
    except TextTooLongError as error:
        where = f"{name}, line {done + error.index + 1}"
        raise InputError(f"{where}: {error.reason}") from error
    for text, translation in zip(texts, found, strict=True):
        if options.json:
            yield _translation_json(text, translation, options)
        else:
            yield from _translation_lines(translation, options)


def _plot_attention(
    translator: "Translator", text: str, translation: str, path: str, name: str
) -> None:
    """Draws the attention of the first line of the text `name` and its translation."""
    if not text.strip():
        raise InputError(f"{name}, line 1: blank, there is no attention to draw")
    (maps,) = translator.attention_maps([text], [translation])
    figure = plots.attention(
        maps.weights, maps.source_tokens, maps.target_tokens, f"{text}\n{translation}"
    )
    plots.save(figure, path)


def _translation_lines(translation: "Translation", options: argparse.Namespace) -> Iterator[str]:
    for hypothesis in translation.hypotheses[: options.n_best]:
        columns = [hypothesis.text]
        if options.with_scores:
            columns.insert(0, f"{hypothesis.score:.4f}")
        if options.with_alignments:
            columns.append(str(hypothesis.alignment or ""))
        yield "\t".join(columns)
    tabs = "\t" * (options.with_scores + options.with_alignments)
    yield from [tabs] * (options.n_best - len(translation.hypotheses))


def _translation_json(text: str, translation: "Translation", options: argparse.Namespace) -> str:
    hypotheses = []
    for hypothesis in translation.hypotheses:
        fields = {**vars(hypothesis)}
        alignment = fields.pop("alignment")
        if alignment is not None and options.with_alignments:
            fields["alignment"] = alignment.links
        if alignment is not None and options.with_attention:
            fields["attention"] = {
                "source_tokens": alignment.source_tokens,
                "target_tokens": alignment.target_tokens,
                "weights": alignment.weights.round(4).tolist(),
            }
        hypotheses.append(fields)
    fields = {"source": text, "translation": translation.text, "parts": translation.parts}
    return _json({**fields, "hypotheses": hypotheses})


def _score_line(score: "TargetScore") -> str:
    return f"{score.log_probability:.4f}\t{score.perplexity:.4f}"


def _score_json(text: str, score: "TargetScore") -> str:
    return _json({"source": text, **dataclasses.asdict(score)})


def _json(content: dict) -> str:
    return json.dumps(content, ensure_ascii=False)


@contextlib.contextmanager
def _beside(file: str | None) -> Iterator[Iterator[str]]:
    """The lines of the file that goes along with the text; without one, blank lines."""
    if file is None:
        yield repeat("")
        return
    with open_text(file) as stream:
        yield read_lines(stream, file)


def _aligned(
    lines: Iterator[str], beside: Iterator[str], name: str, file: str | None
) -> Iterator[tuple[str, str]]:
    """Line by line; that one of two files is longer is told when the other ends."""
    if file is None:
        yield from zip(lines, beside, strict=False)
        return
    for number, (text, other) in enumerate(zip_longest(lines, beside)):
        if text is None or other is None:
            ended = name if text is None else file
            raise InputError(
                f"{ended} has {number} lines, {file if text is None else name} has more; line n of "
                "one must belong to line n of the other"
            )
        yield text, other


class _Progress:
    """A line on standard error, if a person is looking there and not at the translations."""

    def __init__(self, file: str | None):
        self._shown = bool(sys.stderr) and sys.stderr.isatty() and not sys.stdout.isatty()
        self._total = None
        # A pipe could not be read again.
        if self._shown and file is not None and Path(file).is_file():
            with Path(file).open("rb") as stream:
                self._total = sum(1 for _ in stream)
        self._began = time.perf_counter()

    def show(self, done: int) -> None:
        if self._shown:
            speed = done / (time.perf_counter() - self._began)
            of = "" if self._total is None else f"/{self._total:,}"
            print(f"\r\x1b[K{done:,}{of} lines  {speed:,.0f} a second", end="", file=sys.stderr)
            sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            print(file=sys.stderr)


if __name__ == "__main__":
    leave(main())
