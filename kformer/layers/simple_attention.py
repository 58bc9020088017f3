"""A sequence as one vector: the mean of its positions, each weighed by a learned question."""

import keras
import tensorflow as tf

from kformer.choices import AttentionScore
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout
from kformer.layers.scores import additive_scores, attend, dot_product_scores


@keras.saving.register_keras_serializable("kformer")
class SimpleAttention(ArgumentsConfig, keras.layers.Layer):
    """Attention of one head and one learned query, which pools a sequence into a vector: for
    classifying texts, say, with weights that show which words decided.

    Args:
        units: width of the output.
        score: "dot_product", q . k / sqrt(units), or "additive", v . tanh(q + k), where both q and
            v are learned.
        dropout: share of the attention weights to drop in training.

    Call arguments:
        x: float tensor (batch, length, width).
        attention_mask: boolean tensor (batch, length), True = attend; also with axes of 1 between,
            as `padding_mask` gives it. None: all.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor (batch, units), or with `return_weights` a pair with the weights (batch, length) in
        float32. A row whose positions are all masked is zero.

    Example:
        >>> x = PositionalEmbedding(8000, 64, positions="none")(ids)
        >>> text = SimpleAttention(32)(x, padding_mask(ids))

    Source:
        Yang et al., "Hierarchical Attention Networks for Document Classification", 2016, section
        2.2, with a projection of the values.
    """

    def __init__(
        self,
        units: int,
        score: AttentionScore = "dot_product",
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if score not in AttentionScore.__args__:
            raise ValueError(
                f"`score` must be one of {', '.join(AttentionScore.__args__)}. "
                f"Received: score={score!r}"
            )
        self.units = units
        self.score = score
        self.dropout = dropout
        self.weights_dropout = Dropout(dropout, dtype="float32", name="weights_dropout")

    def build(self, x_shape):
        # Keys have no bias: it would change all scores of a row alike, or be the query's.
        self.key_kernel = self.add_weight(
            name="key_kernel", shape=(x_shape[-1], self.units), initializer="glorot_uniform"
        )
        self.value_kernel = self.add_weight(
            name="value_kernel", shape=(x_shape[-1], self.units), initializer="glorot_uniform"
        )
        self.value_bias = self.add_weight(
            name="value_bias", shape=(self.units,), initializer="zeros"
        )
        # Scores begin with a variance near one where those of `x` do.
        self.query = self.add_weight(
            name="query", shape=(self.units,), initializer=keras.initializers.RandomNormal(stddev=1)
        )
        if self.score == "additive":
            limit = (6 / (self.units + 1)) ** 0.5
            self.score_vector = self.add_weight(
                name="score_vector",
                shape=(self.units,),
                initializer=keras.initializers.RandomUniform(-limit, limit),
            )
        self.weights_dropout.build(None)
        self.built = True

    def call(self, x, attention_mask=None, return_weights=False, training=False):
        keys = tf.matmul(x, self.key_kernel)
        values = tf.matmul(x, self.value_kernel) + self.value_bias
        # One query for all rows: (1, units) and (B, T, units) make scores (B, 1, T).
        query = self.query[tf.newaxis]
        if self.score == "additive":
            scores = additive_scores(query, keys, self.score_vector)
        else:
            scores = dot_product_scores(query, keys)
        if attention_mask is not None:
            attention_mask = tf.reshape(attention_mask, tf.shape(scores))
        dropout = None
        if training and self.dropout:
            dropout = lambda weights: self.weights_dropout(weights, training=True)  # noqa: E731
        context, weights = attend(scores, values, attention_mask, dropout)
        pooled, weights = tf.squeeze(context, 1), tf.squeeze(weights, 1)
        return (pooled, weights) if return_weights else pooled
