"""From the decoder's width to the vocabulary."""

import keras
import tensorflow as tf

from kformer.layers.config import ArgumentsConfig


@keras.saving.register_keras_serializable("kformer")
class OutputProjection(ArgumentsConfig, keras.layers.Layer):
    """Logits over the vocabulary, always float32, from own weights or a tied embedding.

    Half precision would round logits so coarsely that tokens tie (10 bits for float16, 8 for
    bfloat16), so the product is made in float32. Its gradients are made in the compute dtype,
    like those of every other product of a mixed-precision step.

    Args:
        vocab_size: number of logits.
        d_model: width of the input.
        tied: True: the table of an embedding is passed to each call and used transposed.
        use_bias: whether to add a bias.

    Call arguments:
        x: float tensor (batch, length, d_model).
        embedding: when tied, the embedding table (vocab_size, d_model).

    Returns:
        float32 tensor (batch, length, vocab_size).

    Source:
        Press and Wolf, "Using the Output Embedding to Improve Language Models", 2017.
    """

    def __init__(
        self, vocab_size: int, d_model: int, tied: bool = False, use_bias: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.tied = tied
        self.use_bias = use_bias

    def build(self, x_shape, embedding_shape=None):
        if not self.tied:
            self.kernel = self.add_weight(
                name="kernel",
                shape=(self.vocab_size, self.d_model),
                initializer="glorot_uniform",
                autocast=False,
            )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False
            )
        self.built = True

    def call(self, x, embedding=None):
        table = embedding if self.tied else self.kernel
        shape = tf.shape(x)
        logits = _float32_product(tf.reshape(x, [-1, self.d_model]), tf.convert_to_tensor(table))
        if self.use_bias:
            logits = tf.nn.bias_add(logits, tf.cast(self.bias, tf.float32))
        return tf.reshape(logits, [shape[0], shape[1], self.vocab_size])


@tf.custom_gradient
def _float32_product(x, table):
    """x (N, D) times the transpose of table (V, D): float32 (N, V)."""

    def gradient(upstream):
        upstream = tf.cast(upstream, x.dtype)
        d_x = tf.matmul(upstream, tf.cast(table, x.dtype))
        d_table = tf.matmul(upstream, x, transpose_a=True)
        return d_x, tf.cast(d_table, table.dtype)

    return tf.matmul(tf.cast(x, tf.float32), tf.cast(table, tf.float32), transpose_b=True), gradient
