"""Pictures of how training went, and of how good its results are."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kformer.errors import InputError
from kformer.plots.figure import (
    SERIES_COLORS,
    SERIES_MARKERS,
    legend_columns,
    legend_entry,
    make_sober,
    new_figure,
    text_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SOLID, _DASHED = "solid", "dashed"


class _Panel(NamedTuple):
    title: str
    unit: str
    factor: float
    keys: dict[str, str]  # key of a metric, kind of line


_PANELS = (
    _Panel(
        "Loss", "nats a target token", 1,
        {"val_loss": "validation", "loss": "training"},
    ),
    _Panel(
        "Perplexity", "perplexity", 1,
        {"val_perplexity": "validation", "perplexity": "training"},
    ),
    _Panel(
        "Token accuracy", "correct target tokens in %", 100,
        {"val_accuracy": "validation", "accuracy": "training"},
    ),
    _Panel("Translations", "score of 100", 1, {"val_bleu": "BLEU", "val_chrf": "chrF"}),
)  # fmt: skip


def curves(runs: Mapping[str, Sequence[Mapping]]) -> "Figure":
    """How runs went: loss, perplexity, accuracy, and BLEU with chrF, over updates.

    A panel that no run has figures for is left out, and so is what is missing of one run.

    Args:
        runs: by name the lines of a run's `metrics.jsonl`, each a mapping with `update` and any
            of `loss`, `perplexity`, `accuracy`, those three with `val_` before, `val_bleu` and
            `val_chrf`. A figure may be missing or None.
    """
    found = [panel for panel in _PANELS if any(_has(run, panel) for run in runs.values())]
    if not found:
        raise InputError("no figures to picture: neither loss, perplexity, accuracy nor BLEU")
    rows, columns = math.ceil(len(found) / 2), min(2, len(found))
    width = max(5.2 * columns, legend_entry(list(runs)))
    side_by_side = legend_columns(list(runs), width)
    height = 3.2 * rows + 0.3 * math.ceil(len(runs) / side_by_side) + 0.1
    figure = new_figure(width, height)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in places[len(found) :]:
        axes.set_visible(False)
    for axes, panel in zip(places, found, strict=False):
        _draw_panel(axes, panel, runs)
    handles = [_line(number) for number in range(len(runs))]
    figure.legend(
        handles, list(runs), loc="outside lower center", ncols=side_by_side, frameon=False
    )
    return figure


def _draw_panel(axes, panel: _Panel, runs) -> None:
    kinds = {}
    for (key, kind), style in zip(panel.keys.items(), (_SOLID, _DASHED), strict=True):
        for number, run in enumerate(runs.values()):
            points = list(_points(run, key))
            if points:
                updates, values = zip(*points, strict=True)
                line = _line(number, style, dots=len(points) <= 40)
                line.set_data(updates, panel.factor * np.asarray(values))
                axes.add_line(line)
                kinds[kind] = _line(None, style)
    axes.autoscale_view()
    make_sober(axes)
    axes.set(title=panel.title, xlabel="update", ylabel=panel.unit, xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    # The first perplexities would leave a single line of all later ones.
    if panel.unit == "perplexity" and axes.dataLim.y1 > 5 * axes.dataLim.y0 > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(_plain)
        axes.yaxis.set_minor_formatter(_plain)
    axes.legend(kinds.values(), kinds.keys(), frameon=False, fontsize=9)


def _line(number: int | None, style: str = _SOLID, dots: bool = True):
    """A line of a run, without data yet; of no run, it shows a style. Dots of dashed ones are
    hollow: a run may have a single round."""
    from matplotlib.lines import Line2D

    color, marker = "#444444", "o"
    if number is not None:
        color = SERIES_COLORS[number % len(SERIES_COLORS)]
        marker = SERIES_MARKERS[number % len(SERIES_MARKERS)]
    return Line2D(
        [], [],
        color=color, linestyle=style, linewidth=1.6,
        marker=marker if dots else "", markersize=4.5,
        markerfacecolor="white" if style == _DASHED else color,
    )  # fmt: skip


def _plain(value: float, _) -> str:
    """A tick of a logarithmic axis: 1, 2 and 5 times a power of ten, so that none touch."""
    digits = value / 10 ** math.floor(math.log10(value) + 1e-9)
    return f"{value:,g}" if round(digits, 6) in (1, 2, 5) else ""


def _has(run: Sequence[Mapping], panel: _Panel) -> bool:
    return any(True for key in panel.keys for _ in _points(run, key))


def _points(run: Sequence[Mapping], key: str) -> Iterator[tuple[float, float]]:
    """Update and value of each line that has a finite number."""
    for line in run:
        value = line.get(key)
        if value is not None and math.isfinite(value):
            yield line["update"], value


def bleu_by_length(
    buckets: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    label: str = "source tokens",
) -> "Figure":
    """BLEU of sentences of like length, a group of bars for each range of lengths.

    Args:
        buckets: what each range is called, such as "1-10".
        values: by name, such as that of a run, BLEU in each range; None: no sentence there.
        label: what the lengths count.
    """
    if not buckets or not values:
        raise InputError("a picture of BLEU by length needs ranges of lengths and values")
    for name, of_one in values.items():
        if len(of_one) != len(buckets):
            raise InputError(
                f"{name}: a value for each of {len(buckets)} ranges. Received: {len(of_one)}"
            )
    names, bar = list(values), 0.8 / len(values)
    width = max(6.0, 0.5 * len(buckets) * (len(values) + 1) + 1, legend_entry(names))
    side_by_side = legend_columns(names, width)
    figure = new_figure(width, 3.3 + 0.25 * math.ceil(len(names) / side_by_side))
    axes = figure.subplots()
    containers = []
    for number, of_one in enumerate(values.values()):
        places = np.arange(len(buckets)) + (number - (len(values) - 1) / 2) * bar
        color = SERIES_COLORS[number % len(SERIES_COLORS)]
        bars = axes.bar(places, [value or 0 for value in of_one], 0.92 * bar, color=color)
        labels = ["–" if value is None else f"{value:.1f}" for value in of_one]
        axes.bar_label(bars, labels, fontsize=8, color="#444444", padding=2)
        containers.append(bars)
    make_sober(axes)
    axes.set_xticks(range(len(buckets)), list(buckets), **text_style(9))
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.1)
    axes.set(xlabel=label, ylabel="BLEU", ylim=(0, None))
    figure.legend(containers, names, loc="outside lower center", ncols=side_by_side, frameon=False)
    return figure
