"""Attention of queries to a memory without heads: scaled dot products, or additive."""

import abc

import keras
import tensorflow as tf

from kformer.layers.attention import KeyValues
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout
from kformer.layers.scores import additive_scores, attend, dot_product_scores


class MemoryAttention(ArgumentsConfig, keras.layers.Layer, abc.ABC):
    """What attention to a memory is, however it is scored: means of the memory's vectors.

    Masks are explicit; Keras' implicit masks are neither read nor set.

    Args:
        dropout: share of the attention weights to drop in training.
    """

    def __init__(self, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.weights_dropout = Dropout(dropout, dtype="float32", name="weights_dropout")

    @abc.abstractmethod
    def _keys(self, memory):
        """What queries are compared with: (batch, keys, depth) of a memory (batch, keys, width)."""

    @abc.abstractmethod
    def _scores(self, query, keys):
        """float32 (batch, queries, keys)."""

    def call(self, query, memory, attention_mask=None, return_weights=False, training=False):
        dropout = None
        if training and self.dropout:
            dropout = lambda weights: self.weights_dropout(weights, training=True)  # noqa: E731
        context, weights = self._attend(query, self.project_memory(memory), attention_mask, dropout)
        return (context, weights) if return_weights else context

    def project_memory(self, memory) -> KeyValues:
        """Keys and values, (batch, keys, depth) each, of a memory, to be computed once."""
        memory = self._cast(memory)
        return KeyValues(self._keys(memory), memory)

    def attend(self, query, memory: KeyValues, attention_mask=None):
        """Attention to keys and values at hand: returns the context and the weights."""
        return self._attend(query, memory, attention_mask)

    def _attend(self, query, memory: KeyValues, mask, dropout=None):
        scores = self._scores(self._cast(query), memory.keys)
        return attend(scores, memory.values, mask, dropout)

    def _cast(self, x):
        # Autocasting covers `call` only; the methods beside it are entered directly.
        return tf.cast(x, self.compute_dtype)


@keras.saving.register_keras_serializable("kformer")
class DotProductAttention(MemoryAttention):
    """softmax(q W k / sqrt(depth)) of queries and a memory, whose vectors are keys and values.

    Args:
        project_query: True: W is learned, and queries may be of another width than the memory
            ("general" of the paper). False: there is no W ("dot").
        dropout: share of the attention weights to drop in training.

    Call arguments:
        query: float tensor (batch, queries, width).
        memory: float tensor (batch, keys, depth) to attend to.
        attention_mask: boolean tensor that broadcasts to (batch, queries, keys), True = attend;
            `lengths_mask` makes it of lengths. A query that may attend to nothing gets zeros.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor (batch, queries, depth), or with `return_weights` a pair with the weights
        (batch, queries, keys) in float32, exactly 0 where the mask is False.

    Example:
        >>> layer = DotProductAttention()
        >>> layer(states, encoded, attention_mask=lengths_mask([7, 4], 9))

    Source:
        Luong et al., "Effective Approaches to Attention-based Neural Machine Translation", 2015,
        section 3.1; the scale is from Vaswani et al., "Attention Is All You Need", 2017.
    """

    def __init__(self, project_query: bool = True, dropout: float = 0.0, **kwargs):
        super().__init__(dropout, **kwargs)
        self.project_query = project_query

    def build(self, query_shape, memory_shape):
        if self.project_query:
            self.query_kernel = self.add_weight(
                name="query_kernel",
                shape=(query_shape[-1], memory_shape[-1]),
                initializer="glorot_uniform",
            )
        elif query_shape[-1] != memory_shape[-1]:
            raise ValueError(
                "Without `project_query` queries must be as wide as the memory. Received: "
                f"query.shape={tuple(query_shape)}, memory.shape={tuple(memory_shape)}"
            )
        self.weights_dropout.build(None)
        self.built = True

    def _keys(self, memory):
        return memory

    def _scores(self, query, keys):
        if self.project_query:
            query = tf.matmul(query, self._cast(self.query_kernel))
        return dot_product_scores(query, keys)


@keras.saving.register_keras_serializable("kformer")
class AdditiveAttention(MemoryAttention):
    """softmax(v . tanh(W q + U k)) of queries and a memory, whose vectors are the values.

    Args:
        units: width in which queries and keys are added.
        dropout: share of the attention weights to drop in training.

    Call arguments:
        query, memory, attention_mask, return_weights, training: as for `DotProductAttention`.

    Returns:
        As `DotProductAttention`.

    Source:
        Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and Translate",
        2015, section A.1.2.
    """

    def __init__(self, units: int, dropout: float = 0.0, **kwargs):
        super().__init__(dropout, **kwargs)
        if units < 1:
            raise ValueError(f"`units` must be at least 1. Received: units={units}")
        self.units = units

    def build(self, query_shape, memory_shape):
        for name, shape in (("query_kernel", query_shape), ("key_kernel", memory_shape)):
            kernel = self.add_weight(
                name=name, shape=(shape[-1], self.units), initializer="glorot_uniform"
            )
            setattr(self, name, kernel)
        self.score_vector = self.add_weight(
            name="score_vector", shape=(self.units,), initializer="glorot_uniform"
        )
        self.weights_dropout.build(None)
        self.built = True

    def _keys(self, memory):
        return tf.matmul(memory, self._cast(self.key_kernel))

    def _scores(self, query, keys):
        query = tf.matmul(query, self._cast(self.query_kernel))
        return additive_scores(query, keys, self._cast(self.score_vector))
