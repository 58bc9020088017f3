"""Pictures of what each token of a translation attends to in its source."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kformer.errors import InputError
from kformer.plots.figure import TokenGrid, new_figure, shown, text_style, token_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention(
    weights: np.ndarray | Sequence[np.ndarray],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str = "",
) -> "Figure":
    """A panel for each layer (a row) and head (a column), all on one scale of colours.

    Args:
        weights: float (layers, heads, target, source), or for each layer (heads, target, source);
            layers may differ in heads. The rows of a panel sum to 1.
        source_tokens: one for each column of a panel.
        target_tokens: one for each row: the token that was predicted there.
        title: such as the sentence and its translation, a line each.
    """
    layers = [np.asarray(of_layer) for of_layer in weights]
    shape = len(target_tokens), len(source_tokens)
    for of_layer in layers:
        if of_layer.ndim != 3 or of_layer.shape[1:] != shape or not of_layer.size:
            raise InputError(
                f"each layer's weights must be (heads, {shape[0]} target tokens, {shape[1]} source "
                f"tokens), none of them 0. Received: {of_layer.shape}"
            )
    if not layers:
        raise InputError("the model has no attention to picture")
    names = [
        [f"layer {layer}, head {head}" for head in range(len(of_layer))]
        for layer, of_layer in enumerate(layers)
    ]
    return _panels(layers, names, source_tokens, target_tokens, title)


def alignment(
    weights: np.ndarray,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str = "",
) -> "Figure":
    """One panel: the attention of one head, or the mean of several.

    Args:
        weights: float (target, source), such as `kformer.alignment.Alignment` has.
        source_tokens, target_tokens, title: see `attention`.
    """
    weights = np.asarray(weights)
    shape = len(target_tokens), len(source_tokens)
    if weights.shape != shape or not weights.size:
        raise InputError(
            f"weights must be ({shape[0]} target tokens, {shape[1]} source tokens), none of them "
            f"0. Received: {weights.shape}"
        )
    return _panels([weights[np.newaxis]], [[""]], source_tokens, target_tokens, title)


def _panels(layers, names, source_tokens, target_tokens, title) -> "Figure":
    rows, columns = len(layers), max(map(len, layers))
    cells = max(columns * len(source_tokens), rows * len(target_tokens))
    layout = TokenGrid.fitting(cells, largest_cell=0.17, room=36)
    width = columns * (max(layout.cell * len(source_tokens), 1.2) + 0.1)
    width = max(width + layout.margin(target_tokens) + 1.0, 4.0)
    height = rows * (max(layout.cell * len(target_tokens), 0.5) + 0.25)
    title = _wrapped(title, width)
    height += layout.margin(source_tokens) + 0.4 + 0.18 * len(title)
    figure = new_figure(width, height)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    most = max(float(of_layer.max()) for of_layer in layers) or 1.0
    style = token_style(layout.fontsize)
    for layer, (of_layer, of_names) in enumerate(zip(layers, names, strict=True)):
        for axes, head, name in zip(panels[layer], of_layer, of_names, strict=False):
            image = axes.imshow(head, cmap="Blues", vmin=0, vmax=most, aspect="auto")
            axes.set_title(name, fontsize=9, pad=3)
            axes.spines[:].set_color("#bbbbbb")
            axes.tick_params(length=0)
        for axes in panels[layer, len(of_layer) :]:
            axes.set_visible(False)
        ticks = np.arange(0, len(target_tokens), layout.every)
        panels[layer, 0].set_yticks(ticks, shown(target_tokens[:: layout.every]), **style)
    ticks = np.arange(0, len(source_tokens), layout.every)
    for axes in panels[-1]:
        axes.set_xticks(ticks, shown(source_tokens[:: layout.every]), rotation=90, **style)
    # In a large figure no larger than it need be.
    shrink = min(0.9, 4 / height)
    bar = figure.colorbar(
        image, ax=panels, label="attention", shrink=shrink, aspect=shrink * height / 0.12, pad=0.02
    )
    bar.outline.set_visible(False)
    figure.supxlabel("source", fontsize=10)
    figure.supylabel("translation", fontsize=10)
    if title:
        figure.suptitle("\n".join(title), **text_style(11))
    return figure


def _wrapped(title: str, width: float) -> list[str]:
    """The lines of a title, none wider than the figure."""
    fitting = max(20, int(width * 10))
    return [part for line in title.splitlines() for part in textwrap.wrap(line, fitting)]
