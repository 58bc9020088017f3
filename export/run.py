"""Export a run for serving: `python -m export.run RUN --to savedmodel --out DIR`."""

import argparse
import sys
from pathlib import Path

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.search_options import add_search_options, check_search_options, make_graph

PRECISIONS = ("float32", "bfloat16", "float16")
# Sentences of the validation text that an export must translate as the run does.
_VERIFIED = 50


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m export.run",
        description="Write a run's best model as a SavedModel that stock TensorFlow Serving loads: "
        "raw strings in, translations out. The search is fixed by the options given here.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument("--to", choices=["savedmodel"], default="savedmodel", help="what to write")
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="folder of versions; a new one is added to it"
    )
    parser.add_argument(
        "--version", type=int, metavar="N", help="its number; default the next free one"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32",
        help="of weights and computation (default float32); scores are float32 in any",
    )  # fmt: skip
    parser.add_argument(
        "--no-verify", action="store_true",
        help="do not load the export in a fresh process and compare its translations",
    )  # fmt: skip
    add_search_options(parser)
    options = parser.parse_args(arguments)
    return run_command(lambda: _export(options))


def _export(options: argparse.Namespace) -> int:
    check_search_options(options)
    if options.sample:
        raise InputError("--sample: a server's answers should be repeatable; export a search")
    import_tensorflow()
    from export.savedmodel import (
        SIGNATURES,
        check_version,
        describe,
        next_version,
        publish,
        unfinished,
        write_savedmodel,
    )
    from export.serving import write_server_files, write_warm_up
    from export.verify import VerificationError, verify
    from kformer.run_folder import RunFolder
    from kformer.translator import Translator

    run, base = RunFolder.open(options.run), Path(options.out)
    version = next_version(base) if options.version is None else options.version
    check_version(base, version)
    graph = make_graph(*run.load(options.precision), options)
    if options.precision != "float32":
        _compare(run, Translator(make_graph(*run.load(), options)), Translator(graph), options)
    base.mkdir(parents=True, exist_ok=True)
    partial = unfinished(base, version)
    print(f"writing     {base / str(version)}", flush=True)
    write_savedmodel(graph, partial, describe(run, graph, options.precision))
    texts = _lines(run)[:_VERIFIED]
    warm_up = write_warm_up(partial, texts)
    if not options.no_verify:
        print("verifying   in a fresh process, without kformer", flush=True)
        translations = [text.decode() for text in graph.translate(texts)["translation"].numpy()]
        try:
            verify(partial, texts, translations)
        except VerificationError as error:
            raise InputError(f"{partial}: not published: {error}") from error
    folder = publish(partial, base, version)
    write_server_files(base, run.path.resolve().name)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"size        {size / 1e6:.1f} MB, weights in {options.precision}")
    print(f"signatures  {', '.join(SIGNATURES)}")
    print(f"warm-up     {warm_up}")
    print(f"\nserve it: docker compose -f {base / 'compose.yaml'} up")
    return 0


def _lines(run) -> list[str]:
    """The sources of the run's validation text."""
    rows = run.text("valid").read_text("utf-8").split("\n")
    return [row.split("\t")[0] for row in rows if row]


def _compare(run, exact, rounded, options) -> None:
    """Prints what the precision costs, on the run's test text."""
    from sacrebleu.metrics import BLEU

    rows = [row.split("\t") for row in run.text("test").read_text("utf-8").split("\n") if row]
    sources, references = [row[0] for row in rows], [row[1] for row in rows]
    scores = [
        BLEU().corpus_score(translator.translate(sources), [references]).score
        for translator in (exact, rounded)
    ]
    print(
        f"precision   test BLEU {scores[0]:.2f} in float32, {scores[1]:.2f} in "
        f"{options.precision}: {scores[1] - scores[0]:+.2f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
