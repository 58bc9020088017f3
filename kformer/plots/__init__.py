"""Pictures that explain: what a model is given, how it is trained, what it attends to.

Each function takes plain arrays and gives a Matplotlib figure of its own; `save`, `to_png` and
`to_image` make of it what is needed. Nothing of `matplotlib.pyplot` is touched and no display is
needed. Matplotlib comes with `pip install 'kformer[plots]'`.
"""

from kformer.plots.attention_maps import alignment, attention
from kformer.plots.figure import can_draw, check_path, save, to_image, to_png
from kformer.plots.inputs import masks, positions
from kformer.plots.recipe import label_smoothing, schedules
from kformer.plots.results import bleu_by_length, curves

__all__ = [
    "alignment",
    "attention",
    "bleu_by_length",
    "can_draw",
    "check_path",
    "curves",
    "label_smoothing",
    "masks",
    "positions",
    "save",
    "schedules",
    "to_image",
    "to_png",
]
