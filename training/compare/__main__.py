"""Train variants over seeds and compare them: `python -m training.compare EXPERIMENT`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.search_options import make_search
from training.compare.experiment import Experiment, Variant, read_experiment
from training.compare.files import EXPERIMENTS, experiment_file


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    known = ", ".join(sorted(path.stem for path in EXPERIMENTS.glob("*.yaml")))
    parser = argparse.ArgumentParser(
        prog="python -m training.compare",
        description="Train each variant of an experiment with each of its seeds, translate the "
        "test text, and report how they differ. Runs that are finished are not trained again, one "
        "that was stopped goes on: give the same command again.",
        allow_abbrev=False,
    )
    parser.add_argument("experiment", metavar="EXPERIMENT", help=f"a YAML file, or one of: {known}")
    parser.add_argument(
        "--out", metavar="DIR", help="folder of runs and report; if not given, runs/EXPERIMENT"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[],
        help="what the experiment needs, or a setting for all its variants; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--overwrite", action="store_true", help="train runs anew whose settings have changed"
    )
    parser.add_argument(
        "--report-only", action="store_true", help="train nothing: report what is there"
    )
    options = parser.parse_args(arguments)
    return run_command(lambda: _compare(options))


def _compare(options: argparse.Namespace) -> int:
    experiment = read_experiment(experiment_file(options.experiment), _given(options.set))
    folder = Path(options.out or Path("runs") / experiment.file.stem)
    # Loads Keras, which takes seconds: not before the experiment is known to be right.
    import_tensorflow()
    from training.compare.report import write_report
    from training.compare.runs import check_unchanged, locked, plan
    from training.compare.work import work

    runs = plan(experiment, folder)
    if not options.overwrite:
        for run in runs:
            check_unchanged(run)
    failed = []
    if options.report_only:
        if not folder.is_dir():
            raise InputError(f"{folder}: there is nothing to report yet")
    else:
        _check_searches(experiment)
        _check_texts(experiment, [run.variant for run in runs if not run.is_finished])
        with locked(folder) as lock:
            failed = work(runs, lock)
    if len(failed) < len(runs):
        print(write_report(experiment, runs, folder))
    if failed:
        raise InputError(f"{len(failed)} of {len(runs)} runs failed. {failed[0]}")
    return 0


def _check_searches(experiment: Experiment) -> None:
    """Refuses searches that could not be made, before anything is trained for them.

    Raises:
        InputError: an option is out of range.
    """
    for variant in experiment.variants:
        for name, search in variant.searches.items():
            try:
                make_search(search.parsed)
            except ValueError as error:
                raise InputError(f"{experiment.file}: searches: {name}: {error}") from error


def _check_texts(experiment: Experiment, variants: Sequence[Variant]) -> None:
    """Refuses text that is not there or has no translations, before variants are trained on it.

    Raises:
        InputError: naming it and the variant.
    """
    from training.data.corpus import find_sources

    for variant in variants:
        where = f"{experiment.file}: variants: {variant.name}"
        try:
            sources = find_sources(variant.config.data, lines_too=True)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if sources.of_lines:
            raise InputError(
                f"{where}: {sources.train[0].parts[0].name} is lines of one language; an "
                "experiment compares translations, so data.train must be pairs"
            )


def _given(words: Sequence[str]) -> dict[str, str]:
    given = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--set must be KEY=VALUE. Received: {word}")
        given[key] = value
    return given


if __name__ == "__main__":
    sys.exit(main())
