"""The runs of an experiment: which there are, how far each is, and how one is trained."""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kformer.errors import InputError
from kformer.run_folder import RunFolder
from training.checkpoints import all_checkpoints, last_update
from training.compare.child import CommandError, run_module
from training.compare.experiment import Experiment, Variant, slug
from training.config import differences, load_config

# A run may go on with other values of these, but has other results then.
_LENGTH = ("updates", "patience", "max_minutes")


@dataclass(frozen=True)
class Run:
    """A variant with a seed.

    Args:
        variant: what is trained.
        seed: of its weights, batches and dropout.
        folder: its run folder.
    """

    variant: Variant
    seed: int
    folder: RunFolder

    @property
    def name(self) -> str:
        """That of its folder."""
        return self.folder.path.name

    @property
    def words(self) -> list[str]:
        """What trains it, after `python -m`."""
        run = ["--run", str(self.folder.path)]
        return ["training.run", *self.variant.words, f"--train.seed={self.seed}", *run]

    @property
    def is_finished(self) -> bool:
        """Whether it is trained to its end."""
        if not self.folder.best_model.is_file() or _changed(self):
            return False
        # Without scores it was stopped after its last update, or before.
        updates = self.variant.config.train.updates
        return self.folder.scores.is_file() or last_update(self.folder.checkpoints) >= updates


def plan(experiment: Experiment, folder: Path) -> list[Run]:
    """All runs of an experiment: all variants with the first seed, then with the next.

    So whatever is there when it is stopped can be compared.
    """
    return [
        Run(variant, seed, RunFolder(folder / f"{slug(variant.name)}-{seed}"))
        for seed in experiment.seeds
        for variant in experiment.variants
    ]


def check_unchanged(run: Run) -> None:
    """Refuses a folder that holds something else than this run.

    Raises:
        InputError: saying what.
    """
    folder = run.folder
    if not folder.path.exists():
        return
    if not folder.config.is_file():
        raise InputError(f"{folder.path}: holds no config.yaml, so it is not replaced. Move it")
    different = _changed(run)
    if different:
        raise InputError(
            f"{folder.path}: was made with other settings: {'; '.join(different)}. To train it "
            "anew, and others that have changed: --overwrite. To keep it: another --out"
        )


def train_run(run: Run, show: Callable[[str], None], locks=()) -> None:
    """Trains a run, or goes on with it; one that was made with other settings is replaced.

    Args:
        run: what to train.
        show: called with each line it prints.
        locks: see `run_module`.

    Raises:
        KeyboardInterrupt: it was stopped, and can be gone on with.
        CommandError: it failed.
    """
    words = run.words
    if run.folder.path.exists() and (not all_checkpoints(run.folder.checkpoints) or _changed(run)):
        # Without a checkpoint there is nothing to go on from.
        words = [*words, "--overwrite"]
    run_module(words, log_file(run), show, locks)
    if not run.is_finished:
        raise CommandError("training was stopped before its end; the same command goes on")


def log_file(run: Run) -> Path:
    """What a run and its translations print; beside its folder, which it would be in the way of."""
    return run.folder.path.parent / "logs" / f"{run.name}.log"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Keeps others from working in a folder, as long as this process or one that it started is.

    Raises:
        InputError: another one is at work there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{folder}: another comparison is at work there") from error
        yield file.fileno()


def _changed(run: Run) -> list[str]:
    """Where a run that exists is another than is wanted."""
    made, wanted = load_config(run.folder.config), run.variant.config
    different = [
        f"train.{key} {old!r}, here {new!r}"
        for key in _LENGTH
        if (old := getattr(made.train, key)) != (new := getattr(wanted.train, key))
    ]
    others = [text for text in differences(made, wanted) if not text.startswith("train.seed ")]
    if made.train.seed != run.seed:
        others.append(f"train.seed {made.train.seed}, here {run.seed}")
    return different + others
