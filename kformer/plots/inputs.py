"""Pictures of what a model is given besides its tokens: where they stand, what may be seen."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kformer.errors import InputError
from kformer.plots.figure import TokenGrid, new_figure, shown, text_style, token_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HIDDEN, _SEEN = "#ececec", "#0072b2"


def positions(table: np.ndarray) -> "Figure":
    """A table of positions, and beside it the dot product of each two of its rows.

    Of sinusoids the dot product depends on how far apart the two stand, and on nothing else: that
    is how attention can tell distance.

    Args:
        table: float (positions, d_model), a row added to the embedding at each position.
    """
    table = np.asarray(table, np.float64)
    if table.ndim != 2 or not table.size:
        raise InputError(f"a table of positions has rows and columns. Received: {table.shape}")
    figure = new_figure(11, 4.6)
    left, right = figure.subplots(1, 2)
    largest = np.abs(table).max() or 1.0
    image = left.imshow(table, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    left.set(title="What is added at each position", xlabel="dimension", ylabel="position")
    figure.colorbar(image, ax=left, label="value", pad=0.02)
    image = right.imshow(table @ table.T, cmap="cividis", aspect="auto")
    right.set(title="Dot products of positions", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=right, label="dot product", pad=0.02)
    for axes in (left, right):
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(integer=True)
    return figure


def masks(
    masks: Mapping[str, np.ndarray],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
) -> "Figure":
    """Who may attend to whom: a grid for each mask, filled where attention is allowed.

    Args:
        masks: by name. Booleans (queries, keys), or what broadcasts to them, such as a padding
            mask (1, 1, 1, keys) of one sentence; True = attend.
        queries: the tokens that attend, one a row.
        keys: the tokens that are attended to, one a column. None: the same.
    """
    keys = queries if keys is None else keys
    if not masks or not queries or not keys:
        raise InputError("a picture of masks needs a mask, queries and keys")
    shape = len(queries), len(keys)
    grids = {name: _grid(name, mask, shape) for name, mask in masks.items()}
    layout = TokenGrid.fitting(max(shape[0], len(grids) * shape[1]), largest_cell=0.3, room=16)
    width = len(grids) * max(shape[1] * layout.cell + 0.15, 1.2) + layout.margin(queries) + 0.4
    height = max(shape[0] * layout.cell, 0.4) + layout.margin(keys) + 0.75
    figure = new_figure(max(width, 2.5), height)
    style = token_style(layout.fontsize)
    panels = figure.subplots(1, len(grids), sharey=True, squeeze=False)[0]
    for axes, (name, grid) in zip(panels, grids.items(), strict=True):
        colors = np.where(grid, _SEEN, _HIDDEN).ravel()
        mesh = axes.pcolormesh(grid, edgecolors="white", linewidth=4 * layout.cell)
        # Colours, not a map of values to colours: these are two kinds, not amounts.
        mesh.set_array(None)
        mesh.set_facecolor(colors)
        axes.set_xlim(0, shape[1])
        axes.set_ylim(shape[0], 0)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        ticks = np.arange(0, shape[1], layout.every)
        axes.set_xticks(ticks + 0.5, shown(keys[:: layout.every]), rotation=90, **style)
        axes.set_title(name, **text_style(11))
    ticks = np.arange(0, shape[0], layout.every)
    panels[0].set_yticks(ticks + 0.5, shown(queries[:: layout.every]), **style)
    figure.supylabel("this token", fontsize=9)
    figure.supxlabel("may attend to these, where filled", fontsize=9)
    return figure


def _grid(name: str, mask: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    mask = np.asarray(mask, bool)
    # Of batch and heads; an axis of queries may be of one, too.
    while mask.ndim > 2 and mask.shape[0] == 1:
        mask = mask[0]
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        raise InputError(
            f"mask {name!r} must broadcast to {shape[0]} queries and {shape[1]} keys. "
            f"Received: shape {mask.shape}"
        ) from error
