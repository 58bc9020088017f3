"""The figures that a training wrote after each round."""

import json
import math
import statistics
from collections.abc import Sequence

from kformer.errors import InputError
from training.compare.runs import Run


def read_rounds(run: Run) -> list[dict[str, float]]:
    """The figures of each round of a training.

    Raises:
        InputError: there is none.
    """
    path = run.folder.metrics
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    if not lines:
        raise InputError(f"{path}: holds no figures, though the run is finished")
    # What was no finite number is null there.
    return [
        {name: math.inf if value is None else value for name, value in json.loads(line).items()}
        for line in lines
    ]


def best_round(rounds: Sequence[dict[str, float]], best_by: str) -> dict[str, float]:
    """The round whose model was kept as the best: as training decides it."""

    def reached(figures):
        value = -figures["val_loss"] if best_by == "loss" else figures[f"val_{best_by}"]
        return value, -figures["val_loss"]

    return max(rounds, key=reached)


def tokens_per_second(rounds: Sequence[dict[str, float]]) -> float:
    """The speed of a training; a round of nothing but the first update has none."""
    speeds = [figures["tokens_per_second"] for figures in rounds if figures["tokens_per_second"]]
    # Rounds are of the same number of tokens, about: their mean is the harmonic one.
    return statistics.harmonic_mean(speeds) if speeds else 0.0


def minutes(rounds: Sequence[dict[str, float]]) -> float:
    """How long the rounds took."""
    return rounds[-1]["seconds"] / 60


def mean_rounds(trainings: Sequence[Sequence[dict[str, float]]]) -> list[dict[str, float]]:
    """The means of trainings at each update where all of them have figures."""
    by_update = [{figures["update"]: figures for figures in rounds} for rounds in trainings]
    means = []
    for update, first in by_update[0].items():
        if all(update in others for others in by_update):
            same = [others[update] for others in by_update]
            known = [
                key
                for key in first
                if all(math.isfinite(figures.get(key, math.inf)) for figures in same)
            ]
            means.append(
                {key: statistics.fmean(figures[key] for figures in same) for key in known}
                | {"update": update}
            )
    return means
