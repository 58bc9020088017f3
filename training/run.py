"""Train a model: `python -m training.run [PRESET|CONFIG.yaml] [--SECTION.KEY VALUE ...]`."""

import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import jsonargparse

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from training.command_line import parse_config
from training.config import DEFAULT_PRESET, Config, differences, load_config, to_yaml
from training.data.prepare import prepare_text
from training.data.summary import summary
from training.folders import check_folder
from training.scoring import score


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    began = time.perf_counter()
    return run_command(lambda: _run(sys.argv[1:] if arguments is None else arguments, began))


def _run(arguments: list[str], began: float) -> int:
    parser = jsonargparse.ArgumentParser(
        prog="python -m training.run",
        usage="%(prog)s [PRESET|CONFIG.yaml] [--run DIR] [--SECTION.KEY VALUE ...]\n"
        "       %(prog)s RUN --resume [--train.updates N]",
        description="Train a translation model on parallel text, score it, and leave all of it in "
        "a run folder. Presets: tiny (a smoke run), small (the default: minutes on two CPU "
        "cores), base and big (the paper's, for GPUs).",
        exit_on_error=False,
        print_config=None,  # Theirs would catch ours.
        allow_abbrev=False,
    )
    parser.add_argument(
        "--run", metavar="DIR", help="run folder to make; if not given, runs/PRESET-DATE"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run folder RUN, given in place of a preset, from its last checkpoint",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run folder")
    parser.add_argument(
        "--print_config", action="store_true", help="print the configuration, explained, and stop"
    )
    config, parsed = parse_config(parser, arguments, DEFAULT_PRESET)
    if parsed.print_config:
        print(to_yaml(config))
        return 0
    config = with_vocabulary(config)
    folder, resume = _folder(config, parsed)
    if resume:
        run_config = load_config(folder / "config.yaml")
        # `auto` was decided when the run was made.
        config = replace(config, train=replace(config.train, precision=run_config.train.precision))
    if not resume and (config.train.source_vectors or config.train.target_vectors):
        import_tensorflow()
        from training.vectors import check_vectors

        check_vectors(config)
    # A tokenizer that is not installed should be told now, not after the first round.
    score(["a"], ["a"], config.scoring.bleu_tokenize)
    prepared = prepare_text(config)
    print(summary(config, prepared), flush=True)
    # Loads TensorFlow, which takes seconds and memory: not before the text is known to be right.
    import_tensorflow()
    from training.session import train

    return train(config, prepared, folder, began, overwrite=parsed.overwrite, resume=resume)


def with_vocabulary(config: Config) -> Config:
    """The configuration with the vocabulary of the run that training begins with, if there is one.

    Embeddings mean nothing with another vocabulary.
    """
    if config.train.init_from is None or config.tokenizer.file is not None:
        return config
    return replace(config, tokenizer=replace(config.tokenizer, file=config.train.init_from))


def _folder(config: Config, parsed: jsonargparse.Namespace) -> tuple[Path, bool]:
    """The run folder, and whether it is gone on with.

    Raises:
        InputError: it cannot be made or gone on with.
    """
    if parsed.resume:
        folder = Path(parsed.run or parsed.config)
        if not (folder / "config.yaml").is_file():
            raise InputError(f"{folder}: no run folder to go on with (it holds no config.yaml)")
        different = differences(load_config(folder / "config.yaml"), config)
        if different:
            raise InputError(
                f"{folder}: cannot go on with other settings: {'; '.join(different)}. Start a new "
                "run: --run DIR"
            )
        return folder, True
    stamped = f"{Path(parsed.config).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(parsed.run or Path("runs") / stamped)
    checkpoints = folder / "checkpoints"
    if not parsed.overwrite and (folder / "config.yaml").is_file() and checkpoints.is_dir():
        if not differences(load_config(folder / "config.yaml"), config):
            return folder, True
    check_folder(folder, "--run", parsed.overwrite, mark="config.yaml")
    return folder, False


if __name__ == "__main__":
    sys.exit(main())
