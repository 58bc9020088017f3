"""The best model of a training."""

import math
from typing import Any

import keras

from kformer.run_folder import RunFolder
from training.callbacks.averages import averaged


class Best(keras.callbacks.Callback):
    """Keeps the best model so far.

    Args:
        run: where it goes.
        figure: the figure of a round that says which model is the best.
        more_is_better: whether more of it is.
    """

    def __init__(self, run: RunFolder, figure: str, more_is_better: bool = True):
        super().__init__()
        self.run = run
        self.figure = figure
        self.more_is_better = more_is_better
        self.best = self.latest = (-math.inf, -math.inf)
        self.rounds_since_best = 0
        self.improved = False

    def on_epoch_end(self, epoch, logs=None):
        value = logs[self.figure] if self.more_is_better else -logs[self.figure]
        # A small text may score the same, or nothing, round after round: then the loss decides.
        self.latest = (value, -logs["val_loss"])
        self.improved = self.latest > self.best
        if self.improved:
            self.best = self.latest
            self.rounds_since_best = 0
            self.run.save_model(self.model, self.run.best_model)
        else:
            self.rounds_since_best += 1

    def save_if_none(self) -> None:
        """Without a validation so far, the model as it is can be used."""
        if not self.run.best_model.exists():
            with averaged(self.model):
                self.run.save_model(self.model, self.run.best_model)

    def state(self) -> dict[str, Any]:
        return {
            "best": _for_json(self.best),
            "latest": _for_json(self.latest),
            "rounds_since_best": self.rounds_since_best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.latest = (
            tuple(-math.inf if value is None else value for value in state[name])
            for name in ("best", "latest")
        )
        self.rounds_since_best = state["rounds_since_best"]


def _for_json(score: tuple[float, float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in score]
