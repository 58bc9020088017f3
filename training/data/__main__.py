"""Clean a corpus and look at it: `python -m training.data [PRESET|CONFIG.yaml] [--out DIR]`."""

import json
import shutil
import sys
from dataclasses import asdict
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import jsonargparse

from kformer.command_line import run_command
from training.command_line import parse_config
from training.config import DEFAULT_PRESET
from training.data.histograms import plot_lengths
from training.data.prepare import prepare_text
from training.data.splits import PARTS
from training.data.summary import explained
from training.folders import check_folder, making_folder


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    return run_command(lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    parser = jsonargparse.ArgumentParser(
        prog="python -m training.data",
        usage="%(prog)s [PRESET|CONFIG.yaml] [--out DIR] [--SECTION.KEY VALUE ...]",
        description="Read, clean and tokenise a corpus as training would, without training: print "
        "what was left out and why, and write the cleaned text, the report and a picture of the "
        "lengths into a folder. A training run with the same settings then starts at once.",
        exit_on_error=False,
        print_config=None,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder to make; if not given, corpora/PRESET-DATE"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing folder")
    config, parsed = parse_config(parser, arguments, DEFAULT_PRESET)
    stamped = f"{Path(parsed.config).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(parsed.out or Path("corpora") / stamped)
    check_folder(folder, "--out", parsed.overwrite, mark="report.txt")
    prepared = prepare_text(config)
    of_lines = prepared.train.meta.of_lines
    report = explained(config, prepared)
    print(report)
    with making_folder(folder, parsed.overwrite) as made:
        texts = [made / f"{part}.{'txt' if of_lines else 'tsv'}" for part in PARTS]
        for part, text in zip(PARTS, texts, strict=True):
            if of_lines:
                with text.open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(f"{pair.target}\n" for pair in prepared.corpus.pairs(part))
            else:
                shutil.copyfile(prepared.corpus.text(part), text)
        (made / "report.txt").write_text(report + "\n", "utf-8", "backslashreplace")
        figures = {**asdict(prepared.corpus.report), "tokens": asdict(prepared.train.meta)}
        (made / "report.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        shutil.copytree(prepared.tokenizer, made / "tokenizer")
        if plots := find_spec("matplotlib") is not None:
            plot_lengths(prepared.train, made / "lengths.png")
    print(
        f"\nin {folder}: {'  '.join(text.name for text in texts)}  report.txt  report.json  "
        "tokenizer/",
        end="",
    )
    print("  lengths.png" if plots else "\nno lengths.png: pip install 'kformer[plots]'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
