"""Attention masks, made once from ids and passed as arguments. True means "may attend"."""

import keras
import tensorflow as tf

from kformer.ids import PAD_ID


def padding_mask(ids: tf.Tensor, pad_id: int = PAD_ID) -> tf.Tensor:
    """Hides padding from every query.

    Args:
        ids: integer tensor (batch, length).
        pad_id: the id that fills up short rows.

    Returns:
        Boolean tensor (batch, 1, 1, length), to broadcast over heads and queries.
    """
    return keras.ops.not_equal(ids, pad_id)[:, None, None, :]


def causal_mask(length: int | tf.Tensor) -> tf.Tensor:
    """Hides the future: position i sees positions 0 to i.

    Args:
        length: number of positions, a Python integer or a scalar tensor.

    Returns:
        Boolean tensor (1, 1, length, length), to broadcast over batch and heads.
    """
    positions = tf.range(length)
    return (positions[tf.newaxis, :] <= positions[:, tf.newaxis])[tf.newaxis, tf.newaxis]
