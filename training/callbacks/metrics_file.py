"""The figures of each round as JSON lines."""

import json
import math
import time

import keras

from kformer.run_folder import RunFolder


class MetricsFile(keras.callbacks.Callback):
    """Appends each round's figures to the run's metrics.jsonl.

    Args:
        run: where the file lies.
    """

    def __init__(self, run: RunFolder):
        super().__init__()
        self.run = run
        self._began = time.perf_counter()
        self._before = 0.0

    def on_epoch_end(self, epoch, logs=None):
        # JSON has no NaN and no infinity.
        figures = {
            name: round(float(value), 6) if math.isfinite(value) else None
            for name, value in logs.items()
        }
        figures["update"] = int(figures["update"])
        figures["seconds"] = round(self._seconds(), 1)
        with self.run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")

    def _seconds(self) -> float:
        """Since the start, times between stopping and going on left out."""
        return self._before + time.perf_counter() - self._began

    def state(self) -> dict[str, float]:
        return {"seconds": self._seconds()}

    def restore(self, state: dict[str, float]) -> None:
        self._before = state["seconds"]
