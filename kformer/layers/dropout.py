"""Dropout that does not cost more than the layer it follows."""

import keras
import tensorflow as tf

from kformer.layers.config import ArgumentsConfig

_LEVELS = 2**16


@keras.saving.register_keras_serializable("kformer")
class Dropout(ArgumentsConfig, keras.layers.Layer):
    """Sets inputs to zero at random and scales the rest so that the expected sum stays.

    The same function as `keras.layers.Dropout`. It draws 16 random bits an element, two elements
    from one 32-bit number, where Keras makes a float of each: on a CPU, where random numbers are
    a large share of a training step, that is several times faster. The rate is thus rounded to a
    multiple of 1/65536, and the scale is the exact inverse of the rounded rate.

    Args:
        rate: share of the inputs to drop, in [0, 1).
        seed: integer seed; by default drawn from the global one (`keras.utils.set_random_seed`).

    Call arguments:
        inputs: float tensor of any shape.
        training: whether to drop anything; outside training the inputs are returned as they are.

    Returns:
        A tensor like `inputs`.

    Reference:
        Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
        2014.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be at least 0 and below 1. Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        self._dropped_levels = min(round(rate * _LEVELS), _LEVELS - 1)
        if rate > 0:
            self._seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        self.built = True

    def call(self, inputs, training=False):
        if not training or self._dropped_levels == 0:
            return inputs
        size = tf.size(inputs)
        bits = tf.random.stateless_uniform(
            [(size + 1) // 2],
            seed=tf.cast(self._seed_generator.next(), tf.int32),
            minval=None,
            maxval=None,
            dtype=tf.int32,
        )
        levels = tf.reshape(tf.bitcast(bits, tf.uint16), [-1])[:size]
        kept = tf.reshape(levels, tf.shape(inputs)) >= tf.constant(self._dropped_levels, tf.uint16)
        scale = _LEVELS / (_LEVELS - self._dropped_levels)
        return inputs * (tf.cast(kept, inputs.dtype) * tf.cast(scale, inputs.dtype))
