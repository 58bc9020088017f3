"""Positions as rotations: what a query and a key have in common depends on their distance only."""

import tensorflow as tf


def rotate(x, positions):
    """Turns the planes of each vector by angles that grow with its position.

    Plane i is made of the components i and i + depth / 2 (the first half holds the one axes, the
    second half the other), and turns by position * 10000^(-2 i / depth). Then q . k of two rotated
    vectors is that of the unrotated ones but for their distance. Angles are float32, as half
    precision cannot count to a sentence's length.

    Args:
        x: float tensor (batch, heads, length, depth), depth even.
        positions: integer tensor that broadcasts to (batch, length).

    Returns:
        A tensor like `x`.

    Source:
        Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, section
        3.2; halves in place of neighbours, as GPT-NeoX and Llama have them.
    """
    depth = x.shape[-1]
    exponents = tf.range(0, depth, 2, dtype=tf.float32) / depth
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * tf.pow(10000.0, -exponents)
    # (B, T, depth / 2) -> (B, 1, T, depth / 2), the same for all heads
    sines, cosines = tf.sin(angles)[:, tf.newaxis], tf.cos(angles)[:, tf.newaxis]
    first, second = tf.split(tf.cast(x, tf.float32), 2, axis=-1)
    rotated = [first * cosines - second * sines, second * cosines + first * sines]
    return tf.cast(tf.concat(rotated, axis=-1), x.dtype)
