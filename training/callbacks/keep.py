"""The checkpoints that a training goes on from."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras

from kformer.errors import InputError
from kformer.run_folder import RunFolder
from training.callbacks.best import Best
from training.checkpoints import Checkpoint, assign, remove_checkpoints, save_checkpoint


class Stateful(Protocol):
    """A callback that a checkpoint has to know."""

    def state(self) -> dict[str, Any]:
        """Fit for JSON."""

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` gave."""


class Keeper(keras.callbacks.Callback):
    """Knows how far training is, and saves checkpoints.

    A checkpoint holds weights, optimizer, random states, the number of batches used, the sums of
    the metrics of an unfinished round, and the state of other callbacks: training goes on from it
    as if it had not stopped.

    Args:
        run: where the files go.
        best: what keeps the best model.
        metrics: the model's training metrics, whose sums an unfinished round has.
        others: what else has a state that belongs to a checkpoint, by name.
        round_batches: batches between validations.
        save_every: batches between checkpoints within a round; None: only after validations.
        keep: how many checkpoints are kept, the newest.
        keep_best: how many more, those of the best validations.
    """

    def __init__(
        self,
        run: RunFolder,
        best: Best,
        metrics: Sequence[keras.metrics.Metric],
        others: Mapping[str, Stateful],
        round_batches: int,
        save_every: int | None = None,
        keep: int = 3,
        keep_best: int = 0,
    ):
        super().__init__()
        self.run = run
        self.best = best
        self.others = {"best": best, **others}
        self.round_batches = round_batches
        self.save_every = save_every
        self.keep = keep
        self.keep_best = keep_best
        self.batches = 0
        self._metrics = metrics
        self._sums: list | None = None

    def on_epoch_begin(self, epoch, logs=None):
        if self._sums is not None:
            # Keras has just reset them.
            assign(self._metric_variables, self._sums, self.run.checkpoints)
            self._sums = None

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        # What ends a round or training is followed by a validation, which saves.
        ends = self.batches % self.round_batches == 0 or self.model.stop_training
        if self.save_every and self.batches % self.save_every == 0 and not ends:
            self.save()

    def on_epoch_end(self, epoch, logs=None):
        self._save(in_round=False)

    def save(self) -> None:
        """Saves a checkpoint between validations."""
        self._save(in_round=True)
        self.best.save_if_none()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint.

        Raises:
            InputError: it is of another model.
        """
        for group, variables in self._groups(in_round=False).items():
            assign(variables, checkpoint.variables.get(group, []), checkpoint.path)
        self._sums = checkpoint.variables.get("metrics")
        state = checkpoint.state
        self.batches = state["batches"]
        for name, other in self.others.items():
            if name not in state["callbacks"]:
                raise InputError(
                    f"{checkpoint.path}: was made by another version of kformer; start a new run"
                )
            other.restore(state["callbacks"][name])

    def _save(self, in_round: bool) -> None:
        state = {
            "batches": self.batches,
            "update": int(self.model.optimizer.iterations.numpy()),
            # By which checkpoints are compared.
            "score": None if in_round else self.best.state()["latest"],
            "callbacks": {name: other.state() for name, other in self.others.items()},
        }
        save_checkpoint(self.run.checkpoints, self.batches, self._groups(in_round), state)
        remove_checkpoints(self.run.checkpoints, self.keep, self.keep_best)

    def _groups(self, in_round: bool) -> dict[str, Sequence[keras.Variable]]:
        groups = {
            "model": self.model.weights,
            # What dropout draws next.
            "random": _random_states(self.model),
            "optimizer": self.model.optimizer.variables,
        }
        return groups | ({"metrics": self._metric_variables} if in_round else {})

    @property
    def _metric_variables(self) -> list[keras.Variable]:
        return [variable for metric in self._metrics for variable in metric.variables]


def _random_states(model: keras.Model) -> list[keras.Variable]:
    """The variables that are neither weights nor of metrics."""
    others = {id(variable) for variable in [*model.weights, *model.metrics_variables]}
    return [variable for variable in model.variables if id(variable) not in others]


class Files:
    """Files that rounds append to: a checkpoint knows how long they were.

    Args:
        run: the run folder they lie in.
    """

    def __init__(self, run: RunFolder):
        self._paths = {path.name: path for path in (run.metrics, run.samples)}

    def state(self) -> dict[str, int]:
        return {
            name: path.stat().st_size if path.exists() else 0 for name, path in self._paths.items()
        }

    def restore(self, state: dict[str, int]) -> None:
        """Cuts off what was written after the checkpoint: it will be written again."""
        for name, path in self._paths.items():
            if path.exists():
                with path.open("r+b") as file:
                    file.truncate(min(state[name], path.stat().st_size))
