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


def causal_mask(ids: tf.Tensor) -> tf.Tensor:
    """Hides the future: position i sees positions 0 to i.

    Args:
        ids: tensor (batch, length), of which only the length counts.

    Returns:
        Boolean tensor (1, 1, length, length), to broadcast over batch and heads.
    """
    # By a running sum, which also works where a functional model's length is not known yet.
    positions = keras.ops.cumsum(keras.ops.ones_like(ids[:1, :], dtype="int32"), axis=1)
    return (positions[:, None, :] <= positions[:, :, None])[:, None]


def lengths_mask(lengths: tf.Tensor, max_length) -> tf.Tensor:
    """Hides what is beyond the valid length of a sequence, from every query or from each its own.

    Args:
        lengths: integer tensor (batch,) or (batch, queries): how many keys may be attended to.
        max_length: number of keys, padding included.

    Returns:
        Boolean tensor (batch, 1 or queries, max_length), for attention without heads.
    """
    lengths = tf.convert_to_tensor(lengths)
    if lengths.shape.rank == 1:
        lengths = lengths[:, tf.newaxis]
    return tf.sequence_mask(lengths, max_length)
