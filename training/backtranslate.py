"""Make training pairs of text in one language: `python -m training.backtranslate RUN FILE`."""

import argparse
import secrets
import sys
from pathlib import Path
from typing import TextIO

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.search_options import add_search_options, check_search_options, make_graph
from training.data.parallel import in_chunks
from training.data.progress import say, shown
from training.data.reading.lines import text_lines


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m training.backtranslate",
        description="Translate text of your target language back into the source language, with a "
        "run that was trained the other way round, and write pairs of the translation, behind a "
        "tag, and the text. Train on them beside your own: --data.train '[own.tsv, back.tsv]'. "
        "Sampling makes the most useful pairs (--sample), a beam the cleanest (Edunov et al. 2018, "
        "arXiv:1808.09381); the tag lets the model tell them from real ones (Caswell et al. 2019, "
        "arXiv:1906.06442).",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, trained from target to source")
    parser.add_argument("file", metavar="FILE", help="a text a line; may end in .gz, .xz or .zst")
    parser.add_argument("--out", metavar="TSV", required=True, help="file of pairs to make")
    parser.add_argument(
        "--tag", default="<BT>", metavar="TEXT", help="begins each source (default <BT>; '' none)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    add_search_options(parser)
    options = parser.parse_args(arguments)
    return run_command(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    check_search_options(options)
    out = Path(options.out)
    if out.suffix != ".tsv":
        raise InputError(f"--out {out}: must end in .tsv, as what is read back does")
    if out.exists() and not options.overwrite:
        raise InputError(f"{out}: exists. Name another with --out, or replace it: --overwrite")
    if not Path(options.file).is_file():
        raise InputError(f"{options.file}: no such file")
    partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            pairs, blank = _write_pairs(options, file)
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    say(f"{out}: {pairs:,} pairs; {blank:,} lines without text or translation left out")
    return 0


def _write_pairs(options: argparse.Namespace, file: TextIO) -> tuple[int, int]:
    """Writes the pairs; returns their number, and that of the lines left out."""
    import_tensorflow()
    from kformer.run_folder import RunFolder
    from kformer.translator import Translator

    run = RunFolder.open(options.run)
    run.refuse_lines()
    translator = Translator(make_graph(*run.load(), options))
    tag = f"{options.tag} " if options.tag else ""
    pairs = blank = 0
    chunks = in_chunks(text_lines(Path(options.file)), len, 512)
    for texts in shown(chunks, "translating", len):
        texts = [" ".join(text.split()) for text in texts]
        for text, translation in zip(texts, translator.translate_nbest(texts), strict=True):
            sources = [hypothesis.text for hypothesis in translation.hypotheses]
            sources = [source for source in sources if text and source]
            blank += not sources
            pairs += len(sources)
            file.writelines(f"{tag}{source}\t{text}\n" for source in sources)
    return pairs, blank


if __name__ == "__main__":
    sys.exit(main())
