"""Pictures of how a run is set up, for TensorBoard."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from kformer import plots
from kformer.ids import PAD_ID
from kformer.layers import PositionalEmbedding, causal_mask, padding_mask, sinusoidal_positions
from kformer.models.base import SequenceModel
from training.build import build_schedule
from training.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More positions than a screen has pixels show nothing more.
_POSITIONS = 128
_TOKENS = "the label and eight other tokens </s>".split()


def write_recipe(writer: tf.summary.SummaryWriter, config: Config, model: SequenceModel) -> None:
    """Draws the table of positions, masks, the learning rate and what the loss wants.

    Args:
        writer: of the run's event files.
        config: of the run.
        model: which is trained.
    """
    with writer.as_default(step=0):
        for name, figure in _pictures(config, model):
            tf.summary.image(f"recipe/{name}", plots.to_image(figure)[tf.newaxis])


def _pictures(config: Config, model: SequenceModel) -> Iterator[tuple[str, "Figure"]]:
    table = _position_table(model)
    if table is not None:
        yield "positions", plots.positions(table)
    yield "masks", _masks()
    rates = build_schedule(config)(tf.range(config.train.updates))
    yield "learning_rate", plots.schedules({config.train.schedule: rates.numpy()})
    smoothing, size = config.train.label_smoothing, len(_TOKENS)
    wanted = np.full(size, smoothing / size)
    wanted[1] += 1 - smoothing
    yield "label_smoothing", plots.label_smoothing({f"{smoothing:g}": wanted}, _TOKENS)


def _position_table(model: SequenceModel) -> np.ndarray | None:
    """What is added to the embeddings of a model; None: nothing is."""
    for layer in model.layers:
        if isinstance(layer, PositionalEmbedding) and layer.positions == "learned":
            return layer.position_table[:_POSITIONS].numpy()
        if isinstance(layer, PositionalEmbedding) and layer.positions.startswith("sinusoidal"):
            halves = layer.positions == "sinusoidal_halves"
            return sinusoidal_positions(tf.range(_POSITIONS), layer.d_model, halves).numpy()
    return None


def _masks() -> "Figure":
    """Of a target of five tokens, padded to seven."""
    ids = tf.constant([[2, 4, 5, 6, 7, PAD_ID, PAD_ID]])
    padding, causal = padding_mask(ids), causal_mask(ids)
    both = tf.logical_and(padding, causal)
    tokens = ["<s>", "t1", "t2", "t3", "t4", "<pad>", "<pad>"]
    return plots.masks({"padding": padding, "causal": causal, "both": both}, tokens)
