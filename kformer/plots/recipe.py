"""Pictures of how a model is trained: the learning rate, and what the loss wants to see."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from kformer.errors import InputError
from kformer.plots.figure import (
    SERIES_COLORS,
    make_sober,
    new_figure,
    shown,
    text_style,
    token_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def schedules(rates: Mapping[str, np.ndarray]) -> "Figure":
    """Learning rates over the updates of training.

    Args:
        rates: by name the rate of each update, from the first.
    """
    if not rates:
        raise InputError("a picture of schedules needs at least one. Received: none")
    figure = new_figure(7, 4)
    axes = figure.subplots()
    lines = []
    for of_one, color in zip(rates.values(), cycle(SERIES_COLORS), strict=False):
        updates = np.arange(1, len(of_one) + 1)
        lines += axes.plot(updates, of_one, color=color, linewidth=1.8)
    make_sober(axes)
    axes.set(xlabel="update", ylabel="learning rate", xlim=(0, None), ylim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(lines, list(rates), frameon=False, fontsize=9)
    return figure


def label_smoothing(distributions: Mapping[str, np.ndarray], tokens: Sequence[str]) -> "Figure":
    """The distribution that a loss wants the model to predict, for some amounts of smoothing.

    Args:
        distributions: by name a probability for each token.
        tokens: of a vocabulary small enough to be shown.
    """
    if not distributions or not tokens:
        raise InputError("a picture of label smoothing needs a distribution and tokens")
    for name, distribution in distributions.items():
        if np.shape(distribution) != (len(tokens),):
            raise InputError(
                f"distribution {name!r} must have a probability for each of {len(tokens)} tokens. "
                f"Received: shape {np.shape(distribution)}"
            )
    size = min(9.0, 200 / len(tokens))
    figure = new_figure(max(2.4, 0.42 * len(tokens)) * len(distributions) + 0.6, 3.4)
    panels = figure.subplots(1, len(distributions), sharey=True, squeeze=False)[0]
    for axes, (name, distribution) in zip(panels, distributions.items(), strict=True):
        bars = axes.bar(range(len(tokens)), distribution, color=SERIES_COLORS[0], width=0.75)
        axes.bar_label(bars, fmt="{:.3g}", fontsize=size - 2, color="#444444", padding=2)
        make_sober(axes)
        axes.set_xticks(range(len(tokens)), shown(tokens), rotation=90, **token_style(size))
        axes.set_title(name, **text_style(11))
        axes.tick_params(axis="x", length=0)
    panels[0].set(ylabel="target probability", ylim=(0, 1.1), yticks=np.linspace(0, 1, 6))
    return figure
