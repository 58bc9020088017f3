"""Score a trained model: `python -m training.evaluate RUN`."""

import argparse
import sys
from pathlib import Path

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
        description="Translate the test text of a run with its best model; print BLEU and chrF "
        "with sacreBLEU's signatures. Of a run of lines of one language, print the perplexity.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument(
        "--data", metavar="TSV|SOURCE,TARGET|TXT",
        help="score on this text instead of the run's test",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FILE", help="write the translations, one a line")
    options = parser.parse_args(arguments)
    return run_command(lambda: _evaluate(options))


def _evaluate(options: argparse.Namespace) -> int:
    import_tensorflow()
    from kformer.run_folder import RunFolder
    from training.config import load_config
    from training.perplexity import score_lines
    from training.scoring import score_run

    run = RunFolder.open(options.run)
    if run.of_lines:
        if options.output:
            raise InputError(
                f"--output: {run.path} was trained on lines of one language, not pairs"
            )
        print(score_lines(run, data=options.data))
        return 0
    translations, scores = score_run(
        run, load_config(run.config).scoring.bleu_tokenize, options.data
    )
    print(scores)
    if options.output:
        try:
            Path(options.output).write_text("".join(f"{line}\n" for line in translations), "utf-8")
        except OSError as error:
            raise InputError(f"{options.output}: {error.strerror}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
