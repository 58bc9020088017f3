"""Export a run: `python -m export.run RUN --to savedmodel --out DIR`."""

import argparse
import secrets
import shutil
import sys
from pathlib import Path

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.search_options import (
    add_search_options,
    check_nothing_is_set,
    check_search_options,
    given_search_options,
    make_graph,
    make_search,
)

PRECISIONS = ("float32", "bfloat16", "float16")
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16")
# Sentences of the validation text that an export must translate as the run does.
_VERIFIED = 50
# Options that a model without sources has no use for.
_OF_SOURCES = (
    "length_factor", "length_margin", "max_source_tokens", "coverage_penalty", "alignment_layer",
    "alignment_heads",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m export.run",
        description="Write a run's best model for serving: as a SavedModel that stock TensorFlow "
        "Serving loads, raw strings in and translations out (of a model of lines: how they go on), "
        "its search fixed by the options given here; or as a CTranslate2 model.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument(
        "--to", choices=["savedmodel", "ctranslate2"], default="savedmodel",
        help="what to write (default savedmodel)",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="DIR", required=True,
        help="savedmodel: folder of versions, to which one is added; ctranslate2: folder to make",
    )  # fmt: skip
    saved = parser.add_argument_group("savedmodel")
    saved.add_argument(
        "--version", type=int, metavar="N", help="its number; default the next free one"
    )
    saved.add_argument(
        "--precision", choices=PRECISIONS, default="float32",
        help="of weights and computation (default float32); scores are float32 in any",
    )  # fmt: skip
    saved.add_argument(
        "--xla", action="store_true",
        help="add the signature translate_xla, for a server started with "
        "--xla_cpu_compilation_enabled or on a GPU",
    )  # fmt: skip
    saved.add_argument(
        "--no-verify", action="store_true",
        help="do not load the export in a fresh process and compare its translations",
    )  # fmt: skip
    converted = parser.add_argument_group("ctranslate2")
    converted.add_argument(
        "--quantization", choices=QUANTIZATIONS, default="float32",
        help="of weights (default float32)",
    )  # fmt: skip
    add_search_options(parser)
    options = parser.parse_args(arguments)
    commands = {"savedmodel": _export_savedmodel, "ctranslate2": _export_ctranslate2}
    return run_command(lambda: commands[options.to](options))


def _export_savedmodel(options: argparse.Namespace) -> int:
    check_search_options(options)
    if options.quantization != "float32":
        raise InputError("--quantization is for --to ctranslate2; a SavedModel has --precision")
    import_tensorflow()
    from export.savedmodel import (
        check_version,
        describe,
        publish,
        signatures_of,
        unfinished,
        write_savedmodel,
    )
    from export.serving import write_server_files, write_warm_up
    from export.verify import VerificationError, check_operations, verify
    from kformer.run_folder import RunFolder

    run, base = RunFolder.open(options.run), Path(options.out)
    (_check_lines if run.of_lines else _check_pairs)(options)
    if options.version is not None:
        check_version(base, options.version)
    texts = [source or _beginning(target) for source, target in run.pairs("valid")[:_VERIFIED]]
    graph = _graph(run, options, options.precision)
    if options.precision != "float32":
        _print_cost_of_precision(run, graph, options)
    base.mkdir(parents=True, exist_ok=True)
    partial = unfinished(base)
    print(f"writing     a version of {base}", flush=True)
    try:
        write_savedmodel(graph, partial, describe(run, graph, options.precision), options.xla)
        check_operations(partial)
        warm_up = write_warm_up(partial, texts)
        if not options.no_verify:
            print("verifying   in a fresh process, without kformer", flush=True)
            found = graph.translate(texts)["translation"].numpy()
            verify(partial, texts, [text.decode() for text in found])
        folder = publish(partial, base, options.version)
    except VerificationError as error:
        # Left there, to be looked at.
        raise InputError(f"{partial}: not published: {error}") from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    write_server_files(base, run.path.resolve().name)
    print(f"wrote       {folder}")
    print(f"size        {_megabytes(folder):.1f} MB, weights in {options.precision}")
    print(
        f"signatures  {', '.join(signatures_of(graph))}{', translate_xla' if options.xla else ''}"
    )
    print(f"warm-up     {warm_up}")
    print(f"\nserve it: docker compose -f {base / 'compose.yaml'} up")
    return 0


def _export_ctranslate2(options: argparse.Namespace) -> int:
    check_nothing_is_set(options, "the engine is told how to search when it is asked")
    of_savedmodels = (
        options.precision != "float32", options.xla, options.version is not None, options.no_verify
    )  # fmt: skip
    if any(of_savedmodels):
        raise InputError("--precision, --xla, --version and --no-verify are for --to savedmodel")
    folder = Path(options.out)
    if folder.exists():
        raise InputError(f"{folder}: exists. Name another with --out")
    import_tensorflow()
    from export.ctranslate2 import write_ctranslate2
    from kformer.run_folder import RunFolder

    model, tokenizers = RunFolder.open(options.run).load()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    try:
        write_ctranslate2(model, tokenizers, partial, options.quantization)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"wrote       {folder}")
    print(f"size        {_megabytes(folder):.1f} MB, weights in {options.quantization}")
    return 0


def _check_pairs(options: argparse.Namespace) -> None:
    if options.sample:
        raise InputError("--sample: a server's answers should be repeatable; export a search")


def _check_lines(options: argparse.Namespace) -> None:
    for name in given_search_options(options):
        if name in _OF_SOURCES:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is about sources, which a model of lines has none of")
    if options.xla:
        raise InputError("--xla is for models that translate")


def _graph(run, options: argparse.Namespace, dtype: str):
    model, tokenizers = run.load(dtype)
    if not run.of_lines:
        return make_graph(model, tokenizers, options)
    from kformer.generation import GenerationGraph

    search = make_search(options, tokenizers)
    most = {} if options.max_length is None else {"max_length": options.max_length}
    return GenerationGraph(model, tokenizers, search, **most)


def _beginning(line: str) -> str:
    """What a model of lines may be sent: the first half of the line."""
    return line[: len(line) // 2]


def _print_cost_of_precision(run, graph, options: argparse.Namespace) -> None:
    """What the precision costs on the run's test text."""
    exact = _graph(run, options, "float32")
    measure, name = (_perplexity, "perplexity") if run.of_lines else (_bleu, "BLEU")
    before, after = measure(exact, run), measure(graph, run)
    print(
        f"precision   test {name} {before:.2f} in float32, {after:.2f} in {options.precision}: "
        f"{after - before:+.2f}",
        flush=True,
    )


def _bleu(graph, run) -> float:
    """With the tokenizer that the run is scored with."""
    import yaml
    from sacrebleu.metrics import BLEU

    from kformer.translator import Translator

    config = yaml.safe_load(run.config.read_text("utf-8")) or {}
    bleu = BLEU(tokenize=config.get("scoring", {}).get("bleu_tokenize"))
    sources, references = zip(*run.pairs("test"), strict=True)
    return bleu.corpus_score(Translator(graph).translate(sources), [list(references)]).score


def _perplexity(graph, run) -> float:
    from kformer.generation import Generator
    from kformer.perplexity import perplexity

    return perplexity(Generator(graph), [line for _, line in run.pairs("test")]).perplexity


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    sys.exit(main())
