"""Token embeddings with positions."""

import keras
import tensorflow as tf

from kformer.choices import Positions
from kformer.ids import PAD_ID
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout


def sinusoidal_positions(positions: tf.Tensor, d_model: int, halves: bool = False) -> tf.Tensor:
    """The paper's position signal: sines and cosines of wavelengths 2 pi to 10000 * 2 pi.

    Args:
        positions: integer tensor of any shape, counted from 0.
        d_model: width of the signal, even.
        halves: False: sine and cosine alternate, as the paper writes it. True: all sines, then
            all cosines, as its code and Marian do. The same numbers in another order.

    Returns:
        float32 tensor, the shape of `positions` with `d_model` appended.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """
    exponents = tf.range(0, d_model, 2, dtype=tf.float32) / d_model
    # Half precision cannot count to a sentence's length: bfloat16 ends at 256.
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * tf.pow(10000.0, -exponents)
    sines, cosines = tf.sin(angles), tf.cos(angles)
    if halves:
        return tf.concat([sines, cosines], axis=-1)
    signal = tf.stack([sines, cosines], axis=-1)
    return tf.reshape(signal, tf.concat([tf.shape(positions), [d_model]], axis=0))


@keras.saving.register_keras_serializable("kformer")
class PositionalEmbedding(ArgumentsConfig, keras.layers.Layer):
    """Embeds ids and adds where they stand, in float32; dropout follows.

    Args:
        vocab_size: number of ids.
        d_model: width of the embedding.
        positions: "sinusoidal" (sine and cosine alternate), "sinusoidal_halves" (sines, then
            cosines), "learned" (a table of `max_length` rows) or "none"; so is "rotary" here, as
            attention then rotates by positions.
        max_length: number of learned positions. Sinusoidal ones have no limit.
        scale: whether to multiply embeddings by sqrt(d_model), as in the paper.
        dropout: share of the sum to drop in training.
        embedding_dim: width of the table, if another than `d_model`, as that of pretrained
            vectors; a learned matrix leads from it to `d_model`. None: `d_model`.

    Call arguments:
        ids: integer tensor (batch, length).
        start: position of the first column: a scalar, or one a row as a tensor (batch,).
        training: whether dropout is on.

    Returns:
        A tensor (batch, length, d_model) in the layer's compute dtype.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, sections 3.4 and 3.5.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: Positions = "sinusoidal",
        max_length: int | None = None,
        scale: bool = True,
        dropout: float = 0.0,
        embedding_dim: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if positions not in Positions.__args__:
            raise ValueError(
                f"`positions` must be one of {', '.join(Positions.__args__)}. "
                f"Received: positions={positions!r}"
            )
        if positions == "learned" and not max_length:
            raise ValueError(
                f"Learned positions need a `max_length`. Received: max_length={max_length}"
            )
        if positions.startswith("sinusoidal") and d_model % 2:
            raise ValueError(f"Sinusoids need an even `d_model`. Received: d_model={d_model}")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.positions = positions
        self.max_length = max_length
        self.scale = scale
        self.dropout = dropout
        self.embedding_dim = embedding_dim
        self.sum_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape=None):
        width = self.embedding_dim or self.d_model
        # With this spread the scaled embedding and the logits of a tied output both start at
        # a variance of one.
        normal = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.embedding = self.add_weight(
            name="embedding",
            shape=(self.vocab_size, width),
            initializer=normal,
            autocast=False,
        )
        self.projection = None
        if width != self.d_model:
            # Keeps the spread.
            self.projection = self.add_weight(
                name="projection",
                shape=(width, self.d_model),
                initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
            )
        if self.positions == "learned":
            # As wide beside the embeddings as sinusoids are. With the usual 0.02, models were no
            # better after 500 updates than without positions.
            spread = (0.5 if self.scale else 0.5 / self.d_model) ** 0.5
            self.position_table = self.add_weight(
                name="position_embedding",
                shape=(self.max_length, self.d_model),
                initializer=keras.initializers.RandomNormal(stddev=spread),
                autocast=False,
            )
        self.sum_dropout.build(None)
        self.built = True

    def call(self, ids, start=0, training=False):
        # Keras builds a model under tf.distribute on ids averaged over replicas, which are floats.
        ids = tf.cast(ids, tf.int32)
        # Positions are added in float32 even where the table itself is of a half precision.
        embedded = tf.cast(self._rows(ids), tf.float32)
        if self.scale:
            embedded *= self.d_model**0.5
        if self.positions == "learned":
            embedded += self._learned_positions(ids, start)
        elif self.positions.startswith("sinusoidal"):
            halves = self.positions == "sinusoidal_halves"
            embedded += sinusoidal_positions(_positions(ids, start), self.d_model, halves)
        return self.sum_dropout(tf.cast(embedded, self.compute_dtype), training=training)

    def _rows(self, ids):
        """(batch, length, d_model), before any scale."""
        if self.projection is None:
            return tf.gather(self.embedding, ids)
        rows = tf.cast(tf.gather(self.embedding, tf.reshape(ids, [-1])), self.compute_dtype)
        projected = tf.matmul(rows, self.projection)
        return tf.reshape(projected, [*tf.unstack(tf.shape(ids)), self.d_model])

    def _learned_positions(self, ids, start):
        """float32 (1 or batch, length, d_model)."""
        too_long = f"Longer than the {self.max_length} learned positions (`max_length`)."
        positions = _positions(ids, start)
        # A batch may be padded to any width: which position padding has is all one.
        last = tf.minimum(positions, self.max_length - 1)
        positions = tf.where(tf.equal(ids, PAD_ID), last, positions)
        # Where lengths are known in a graph only, gathering would clamp or give zeros on a GPU.
        try:
            checked = tf.debugging.assert_less(positions, self.max_length, message=too_long)
        except tf.errors.InvalidArgumentError as error:
            received = int(tf.reduce_max(positions)) + 1
            raise ValueError(f"{too_long} Received: {received} positions") from error
        with tf.control_dependencies([] if checked is None else [checked]):
            return tf.cast(tf.gather(self.position_table, positions), tf.float32)


def _positions(ids, start):
    """The position of every column of `ids`: (1, length), or (batch, length) if rows differ."""
    return tf.reshape(start, [-1, 1]) + tf.range(tf.shape(ids)[1])[tf.newaxis]
