"""What all pictures have in common: an empty figure, its look, and how it becomes a file."""

import importlib.util
import io
import math
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kformer.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
"""Told apart by colour-blind people too.

Source:
    Okabe and Ito, "Color Universal Design", 2008.
"""

SERIES_MARKERS = "osD^vPX*"
"""For what has the same colour as another series, as their numbers have no common divisor."""

FORMATS = (".png", ".pdf", ".svg")

_DPI = 100
_SMALLEST_FONT = 5.5
_GREY = "#666666"
# What Matplotlib's own fonts lack, where it is installed.
_MORE_FONTS = (
    "Noto Sans Mono CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP",
    "WenQuanYi Micro Hei", "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai",
)  # fmt: skip


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that belongs to nobody else.

    Raises:
        InputError: Matplotlib is not installed.
    """
    check_installed()
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=_DPI, facecolor="white", layout="constrained")


def can_draw() -> bool:
    """Whether Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_installed() -> None:
    """Refuses to go on without Matplotlib.

    Raises:
        InputError: saying how to install it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError("pictures need Matplotlib: pip install 'kformer[plots]'") from error


def check_path(path: str | os.PathLike) -> None:
    """Refuses a file that no picture can be written to, before any work goes into one.

    Raises:
        InputError: its ending stands for no format, it has no folder, or Matplotlib is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: pictures end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InputError(f"{path}: {problem}")
    check_installed()


def save(figure: "Figure", path: str | os.PathLike) -> None:
    """Writes a figure whole or not at all; an older file of that name is replaced.

    Args:
        figure: to write.
        path: its ending says in which format: .png, .pdf or .svg.

    Raises:
        InputError: the ending is another, or the file cannot be written.
    """
    check_path(path)
    path = Path(path)
    partial = path.with_name(f".{secrets.token_hex(4)}.partial")
    try:
        partial.write_bytes(_encoded(figure, path.suffix[1:].lower()))
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def to_png(figure: "Figure") -> bytes:
    """A figure as the content of a PNG file, 100 pixels an inch."""
    return _encoded(figure, "png")


def to_image(figure: "Figure") -> np.ndarray:
    """A figure as pixels: uint8 (height, width, 4), red, green, blue and opacity."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())


def legend_columns(names: Sequence[str], width: float) -> int:
    """How many names, each with its line or bar, stand side by side below a figure; at most four.

    Args:
        names: of the legend.
        width: of the figure, in inches.
    """
    return max(1, min(4, int(width / legend_entry(names))))


def legend_entry(names: Sequence[str]) -> float:
    """What the longest name takes with its line or bar, in inches."""
    figure = new_figure(1, 1)
    widths = [figure.text(0, 0, name).get_window_extent().width for name in names]
    return max(widths) / _DPI + 0.65


def make_sober(axes: "Axes") -> None:
    """Axes of a diagram: no frame, a faint grid for reading off values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.tick_params(color=_GREY, labelsize=9)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def text_style(size: float, font: str = "DejaVu Sans") -> dict:
    """How text of any language is written, in `size` points; "$" starts no formula."""
    from matplotlib.font_manager import get_font_names

    more = set(_MORE_FONTS).intersection(get_font_names())
    return {"fontsize": size, "fontfamily": [font, *sorted(more)], "parse_math": False}


def token_style(size: float) -> dict:
    """How tokens are written: in signs of one width, among them the mark of a space."""
    return text_style(size, "DejaVu Sans Mono")


class TokenGrid(NamedTuple):
    """How a panel with a cell for each two tokens is laid out, in inches and points.

    Args:
        cell: width and height of a cell.
        fontsize: of the tokens beside it.
        every: how many cells there are from one token written to the next.
    """

    cell: float
    fontsize: float
    every: int

    @classmethod
    def fitting(cls, cells: int, largest_cell: float, room: float) -> "TokenGrid":
        """One that has room in a figure.

        Where cells have to be small, the letters stay legible: not every token is written.

        Args:
            cells: across the figure, or down if these are more.
            largest_cell: what a cell has where there is room for it.
            room: across and down.
        """
        cell = min(largest_cell, room / cells)
        fontsize = max(_SMALLEST_FONT, min(9.0, 50 * cell))
        return cls(cell, fontsize, math.ceil(1.2 * fontsize / 72 / cell))

    def margin(self, tokens: Sequence[str]) -> float:
        """What the longest token takes of the figure, in inches."""
        # A letter of this font is 0.6 times as wide as its size.
        return max(map(len, tokens)) * 0.62 * self.fontsize / 72


def shown(tokens: Sequence[str]) -> list[str]:
    """Tokens with what cannot be seen, such as a tab, written as Python writes it."""
    return [token if token.isprintable() else repr(token)[1:-1] for token in tokens]


def _encoded(figure: "Figure", suffix: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=suffix, dpi=_DPI)
    return stream.getvalue()
