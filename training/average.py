"""Average checkpoints of a run: `python -m training.average RUN --out DIR [--last N|--best N]`."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow

if TYPE_CHECKING:
    from kformer.models.base import SequenceModel
    from training.checkpoints import Checkpoint


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m training.average",
        description="Make a run folder whose model has the mean weights of a run's last or "
        "best checkpoints, and score it on the validation text beside the run's best model. Train "
        "with --train.keep_checkpoints N (and --train.save_every) or --train.keep_best N to have "
        "them.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument("--out", metavar="DIR", required=True, help="run folder to make")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--last", metavar="N", type=int, help="the N newest checkpoints; if not given, all kept"
    )
    which.add_argument(
        "--best", metavar="N", type=int, help="the N of the best validations instead"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing folder")
    options = parser.parse_args(arguments)
    return run_command(lambda: _average(options))


def mean_weights(models: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The means of the weights of several models, in float64, given back in the dtype they had."""
    return [
        np.mean(arrays, axis=0, dtype=np.float64).astype(arrays[0].dtype)
        for arrays in zip(*models, strict=True)
    ]


def weights_of(checkpoint: "Checkpoint", model: "SequenceModel") -> list[np.ndarray]:
    """The weights that a checkpoint would have been validated with.

    Args:
        checkpoint: as training saved it.
        model: one like it, compiled if its optimizer averages weights: then these averages are
            taken. Is left with these weights.

    Raises:
        InputError: the checkpoint is of another model.
    """
    from training.callbacks.averages import exchange
    from training.checkpoints import assign

    assign(model.weights, checkpoint.variables["model"], checkpoint.path)
    if model.compiled:
        assign(model.optimizer.variables, checkpoint.variables["optimizer"], checkpoint.path)
        exchange(model)
    return model.get_weights()


def _average(options: argparse.Namespace) -> int:
    from training.folders import check_folder, making_folder

    folder = Path(options.out)
    check_folder(folder, "--out", options.overwrite, mark="config.yaml")
    for name in ("last", "best"):
        count = getattr(options, name)
        if count is not None and count < 1:
            raise InputError(f"--{name} must be at least 1. Received: {count}")
    import_tensorflow()
    from kformer.run_folder import RunFolder
    from training.checkpoints import read_checkpoint
    from training.config import load_config
    from training.perplexity import score_lines
    from training.scoring import score_run

    run = RunFolder.open(options.run)
    checkpoints = [read_checkpoint(path) for path in _chosen(run.checkpoints, options)]
    config = load_config(run.config)
    trained = run.load_model(compile=config.train.ema is not None)
    model = run.load_model()
    model.set_weights(mean_weights([weights_of(checkpoint, trained) for checkpoint in checkpoints]))
    with making_folder(folder, options.overwrite) as made:
        new = RunFolder(made)
        shutil.copytree(run.tokenizer, new.tokenizer)
        shutil.copytree(run.data, new.data)
        shutil.copyfile(run.config, new.config)
        new.save_model(model, new.best_model)
    updates = [f"{checkpoint.state['update']:,}" for checkpoint in checkpoints]
    print(f"{folder}: mean of the weights after {', '.join(updates)} updates")
    for name, scored in ((options.run, run), (options.out, RunFolder(folder))):
        if scored.of_lines:
            print(f"validation {score_lines(scored, 'valid')}: {name}")
            continue
        _, scores = score_run(scored, config.scoring, str(run.text("valid")))
        print(f"validation BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}: {name}")
    return 0


def _chosen(folder: Path, options: argparse.Namespace) -> list[Path]:
    from training.checkpoints import all_checkpoints, best_checkpoints

    if options.best is None:
        kind, wanted, found = "", options.last, all_checkpoints(folder)
        found = found[-(wanted or len(found)) :]
    else:
        kind, wanted = " of validations", options.best
        found = best_checkpoints(folder, wanted)
    if len(found) < (wanted or 1):
        raise InputError(f"{folder}: holds {len(found)} checkpoints{kind}, not {wanted or 1}")
    return found


if __name__ == "__main__":
    sys.exit(main())
