"""Score a trained model: `python -m training.evaluate RUN`."""

import argparse
import sys
from pathlib import Path

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.search_options import (
    add_search_options,
    check_search_options,
    given_search_options,
    make_graph,
)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
        description="Translate the test text of a run with its best model; print BLEU and chrF "
        "with sacreBLEU's signatures. Without options of the search it is that of the run's "
        "configuration (scoring.*). Of a run of lines of one language, print the perplexity.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument(
        "--data", metavar="TSV|SOURCE,TARGET|TXT",
        help="score on this text instead of the run's test",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FILE", help="write the translations, one a line")
    add_search_options(parser)
    options = parser.parse_args(arguments)
    return run_command(lambda: _evaluate(options))


def _evaluate(options: argparse.Namespace) -> int:
    check_search_options(options)
    import_tensorflow()
    from kformer.run_folder import RunFolder
    from training.config import load_config
    from training.perplexity import score_lines
    from training.scoring import score_run

    run = RunFolder.open(options.run)
    searched = given_search_options(options)
    if run.of_lines:
        for option in ["output"] * bool(options.output) + searched:
            raise InputError(
                f"--{option.replace('_', '-')}: {run.path} was trained on lines of one language, "
                "and translates nothing"
            )
        print(score_lines(run, data=options.data))
        return 0
    graph = make_graph(*run.load(), options) if searched else None
    translations, scores = score_run(run, load_config(run.config).scoring, options.data, graph)
    print(scores)
    if options.output:
        try:
            Path(options.output).write_text("".join(f"{line}\n" for line in translations), "utf-8")
        except OSError as error:
            raise InputError(f"{options.output}: {error.strerror}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
