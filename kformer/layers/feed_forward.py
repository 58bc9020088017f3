"""The feed-forward network applied to each position by itself."""

import keras
import tensorflow as tf

from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable("kformer")
class PositionwiseFeedForward(ArgumentsConfig, keras.layers.Layer):
    """activation(x W1 + b1) W2 + b2, the same at every position.

    Args:
        d_model: width of inputs and outputs.
        d_ff: width between them.
        activation: a Keras activation's name, such as "relu", "gelu" or "swish".
        dropout: share of the activations to drop in training.

    Call arguments:
        x: float tensor (batch, length, d_model).
        training: whether dropout is on.

    Returns:
        A tensor like `x`.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.3.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "relu", dropout: float = 0.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.input_spec = keras.layers.InputSpec(axes={-1: d_model})
        self.d_ff = d_ff
        self.activation = activation
        self.dropout = dropout
        self.inner = keras.layers.Dense(
            d_ff, activation=activation, dtype=self.dtype_policy, name="inner"
        )
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.outer = keras.layers.Dense(d_model, dtype=self.dtype_policy, name="outer")

    def build(self, input_shape):
        self.inner.build((None, self.d_model))
        self.inner_dropout.build((None, self.d_ff))
        self.outer.build((None, self.d_ff))
        self.built = True

    def call(self, x, training=False):
        # Rows, not (batch, length, d): one matrix product, and one for each gradient.
        hidden = self.inner(tf.reshape(x, [-1, self.d_model]))
        output = self.outer(self.inner_dropout(hidden, training=training))
        return tf.reshape(output, tf.shape(x))
