"""Scaled dot-product attention, and attention in several heads at once, of any score."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import AttentionScore
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout
from kformer.layers.rotary import rotate
from kformer.layers.scores import additive_scores, attend, dot_product_scores

# Of each query and key they have a vector in between, more numbers than all else of a layer:
# those are made once more for the gradient rather than kept until then.
_additive_scores = tf.recompute_grad(additive_scores)


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    """softmax(Q K^T / sqrt(depth)) V, exact under masks.

    Scores are products in the precision of the inputs; their softmax is float32. A query that may
    attend to nothing gets weights of zero, thus a context of zero, and passes no gradient.

    Args:
        query: float tensor (..., queries, depth).
        key: float tensor (..., keys, depth).
        value: float tensor (..., keys, value_depth).
        mask: boolean tensor that broadcasts to (..., queries, keys), True = attend. None: all.
        dropout: function applied to the weights, or None.

    Returns:
        The context (..., queries, value_depth) in the dtype of `value`, and the weights
        (..., queries, keys) in float32, before dropout.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.
    """
    return attend(dot_product_scores(query, key), value, mask, dropout)


class KeyValues(NamedTuple):
    """Keys and values of attention, split into heads: two tensors (batch, heads, length, depth)."""

    keys: tf.Tensor
    values: tf.Tensor


@keras.saving.register_keras_serializable("kformer")
class MultiHeadAttention(ArgumentsConfig, keras.layers.Layer):
    """Attention in `num_heads` subspaces: to the own sequence, or across to another one.

    One matrix holds the projections of query, key and value side by side: self-attention is one
    product for all three, attention across is one for the query and one for keys and values.
    Masks are explicit; Keras' implicit masks are neither read nor set.

    Args:
        d_model: width of inputs and outputs.
        num_heads: number of heads; must divide `d_model`.
        dropout: share of the attention weights to drop in training.
        use_bias: whether the projections add a bias.
        rotary: whether self-attention rotates queries and keys by their positions (see
            `kformer.layers.rotary`); d_model / num_heads must be even then. Attention to a memory
            never does.
        score: "dot_product", q . k / sqrt(depth), or "additive", v . tanh(q + k) with a learned v
            for each head. Additive scores cannot be rotary, and need memory for batch * heads *
            queries * keys * depth numbers, of one layer at a time.

    Call arguments:
        query: float tensor (batch, queries, d_model).
        memory: float tensor (batch, keys, d_model) to attend to. None: self-attention.
        attention_mask: boolean tensor that broadcasts to (batch, num_heads, queries, keys),
            True = attend.
        positions: integer tensor that broadcasts to (batch, queries): where the query stands, if
            rotary. None: counted from 0.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor (batch, queries, d_model), or with `return_weights` a pair with the weights
        (batch, num_heads, queries, keys) in float32.

    Example:
        >>> layer = MultiHeadAttention(d_model=64, num_heads=4)
        >>> layer(x, attention_mask=padding_mask(ids))  # self-attention
        >>> layer(x, memory, attention_mask=padding_mask(source_ids))  # across

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2; rotary positions: Su et
        al., "RoFormer", 2021; additive scores: Bahdanau et al., 2015.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        rotary: bool = False,
        score: AttentionScore = "dot_product",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                "`d_model` must be a multiple of `num_heads`. "
                f"Received: d_model={d_model}, num_heads={num_heads}"
            )
        if rotary and d_model // num_heads % 2:
            raise ValueError(
                "`d_model / num_heads` must be even for rotary positions. "
                f"Received: d_model={d_model}, num_heads={num_heads}"
            )
        if score not in AttentionScore.__args__:
            raise ValueError(
                f"`score` must be one of {', '.join(AttentionScore.__args__)}. "
                f"Received: score={score!r}"
            )
        if rotary and score != "dot_product":
            # Only of a product does rotation leave the distance.
            raise ValueError(f"Rotary positions need a dot product. Received: score={score!r}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.dropout = dropout
        self.use_bias = use_bias
        self.rotary = rotary
        self.score = score
        self.weights_dropout = Dropout(dropout, dtype="float32", name="weights_dropout")

    def build(self, query_shape, memory_shape=None):
        self._check_width("query", query_shape)
        if memory_shape is not None:
            self._check_width("memory", memory_shape)
        # Glorot's fans are those of each of the four square matrices, as in the paper's code,
        # not of the three that happen to lie side by side.
        limit = (6 / (2 * self.d_model)) ** 0.5
        glorot = keras.initializers.RandomUniform(-limit, limit)
        self.qkv_kernel = self.add_weight(
            name="qkv_kernel", shape=(self.d_model, 3 * self.d_model), initializer=glorot
        )
        self.output_kernel = self.add_weight(
            name="output_kernel", shape=(self.d_model, self.d_model), initializer="glorot_uniform"
        )
        if self.use_bias:
            self.qkv_bias = self.add_weight(
                name="qkv_bias", shape=(3 * self.d_model,), initializer="zeros"
            )
            self.output_bias = self.add_weight(
                name="output_bias", shape=(self.d_model,), initializer="zeros"
            )
        if self.score == "additive":
            depth = self.d_model // self.num_heads
            # A vector for each head, (H, 1, 1, depth), to be multiplied with (B, H, Q, K, depth).
            limit = (6 / (depth + 1)) ** 0.5
            self.score_vector = self.add_weight(
                name="score_vector",
                shape=(self.num_heads, 1, 1, depth),
                initializer=keras.initializers.RandomUniform(-limit, limit),
            )
        self.weights_dropout.build(None)
        self.built = True

    def call(
        self,
        query,
        memory=None,
        attention_mask=None,
        positions=None,
        return_weights=False,
        training=False,
    ):
        # Reshaped to rows, another width would be an error of TensorFlow's, or none.
        self._check_width("query", query.shape)
        if memory is None:
            if positions is None:
                positions = tf.range(tf.shape(query)[1])[tf.newaxis]
            q, k, v = self._project_self(query, positions)
        else:
            self._check_width("memory", memory.shape)
            (q,) = self._project(query, 0, 1)
            k, v = self.project_memory(memory)
        output, weights = self._attend(q, KeyValues(k, v), attention_mask, training)
        return (output, weights) if return_weights else output

    def project_memory(self, memory) -> KeyValues:
        """Keys and values (batch, heads, length, depth) of a memory, to be computed once."""
        return KeyValues(*self._project(memory, 1, 3))

    def attend(self, query, memory: KeyValues, attention_mask=None):
        """Attention to keys and values at hand: returns the output and the weights."""
        (q,) = self._project(query, 0, 1)
        return self._attend(q, memory, attention_mask)

    def remember(self, x, attention_mask=None):
        """Self-attention as in `call`, and the keys and values, for what comes after."""
        q, k, v = self._project_self(x, tf.range(tf.shape(x)[1])[tf.newaxis])
        output, _ = self._attend(q, KeyValues(k, v), attention_mask)
        return output, KeyValues(k, v)

    def empty_cache(self, batch_size, width, length) -> KeyValues:
        """Room for `length` positions of `width` hypotheses of each sentence, filled by `step`.

        Two tensors (batch, heads, width, length, depth).
        """
        shape = [batch_size, self.num_heads, width, length, self.d_model // self.num_heads]
        return KeyValues(tf.zeros(shape, self.compute_dtype), tf.zeros(shape, self.compute_dtype))

    def step(
        self,
        x,
        cache: KeyValues,
        time,
        seen,
        positions=None,
        memory: KeyValues | None = None,
    ):
        """Self-attention of the newest position of each hypothesis to those before it and itself.

        All hypotheses of a sentence read one cache, each the positions that `seen` shows it. So
        where a search continues one hypothesis twice and drops another, nothing is copied.

        Args:
            x: float tensor (batch, width, d_model), the newest position of each hypothesis.
            cache: keys and values of the positions so far, from `empty_cache` or the last step.
            time: scalar, the number of positions before.
            seen: boolean tensor (batch, 1, width, width * length), True = attend; the cache's
                width and length are one axis. With a memory, its keys come first on that axis.
            positions: integer tensor that broadcasts to (batch, width): where the newest positions
                stand, if rotary. None: at `time`. The cache holds rotated keys.
            memory: keys and values of what stands before all hypotheses, from `remember`. None:
                nothing does.

        Returns:
            The output (batch, width, d_model), the cache with the new positions filled in, and
            the weights (batch, num_heads, width, any) of what `seen` is of.
        """
        q, k, v = self._project_self(x, [[time]] if positions is None else positions)
        cache = KeyValues(_write(cache.keys, k, time), _write(cache.values, v, time))
        batch, heads, width, length, depth = tf.unstack(tf.shape(cache.keys))
        all_seen = [tf.reshape(tensor, [batch, heads, width * length, depth]) for tensor in cache]
        if memory is not None:
            pairs = zip(memory, all_seen, strict=True)
            all_seen = [tf.concat([before, own], axis=2) for before, own in pairs]
        output, weights = self._attend(q, KeyValues(*all_seen), seen)
        return output, cache, weights

    def _attend(self, q, memory: KeyValues, mask, training=False):
        dropout = None
        if training and self.dropout:
            dropout = lambda weights: self.weights_dropout(weights, training=True)  # noqa: E731
        if self.score == "additive":
            scores = _additive_scores(q, memory.keys, self._cast(self.score_vector))
        else:
            scores = dot_product_scores(q, memory.keys)
        context, weights = attend(scores, memory.values, mask, dropout)
        # (B, H, T, depth) -> (B, T, D)
        shape = tf.shape(context)
        context = tf.transpose(context, [0, 2, 1, 3])
        context = tf.reshape(context, [-1, self.d_model])
        output = tf.matmul(context, self._cast(self.output_kernel))
        if self.use_bias:
            output = tf.nn.bias_add(output, self._cast(self.output_bias))
        return tf.reshape(output, [shape[0], shape[2], self.d_model]), weights

    def _project_self(self, x, positions):
        """Query, key and value of self-attention, each (B, H, T, depth)."""
        q, k, v = self._project(x, 0, 3)
        if self.rotary:
            q, k = rotate(q, positions), rotate(k, positions)
        return q, k, v

    def _project(self, x, first: int, last: int):
        """Projections `first` to `last` - 1 of (query, key, value), each (B, H, T, depth)."""
        count, columns = last - first, slice(first * self.d_model, last * self.d_model)
        shape = tf.shape(x)
        flat = tf.reshape(self._cast(x), [-1, self.d_model])
        flat = tf.matmul(flat, self._cast(self.qkv_kernel)[:, columns])
        if self.use_bias:
            flat = tf.nn.bias_add(flat, self._cast(self.qkv_bias)[columns])
        depth = self.d_model // self.num_heads
        heads = tf.reshape(flat, [shape[0], shape[1], count, self.num_heads, depth])
        return tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]), num=count)

    def _check_width(self, name, shape):
        if shape[-1] != self.d_model:
            raise ValueError(
                f"The last axis of `{name}` must be d_model={self.d_model}. "
                f"Received: {name}.shape={tuple(shape)}"
            )

    def _cast(self, x):
        # Autocasting covers `call` only; the methods beside it are entered directly.
        return tf.cast(x, self.compute_dtype)


def _write(cache, new, time):
    """`cache` (B, H, W, L, depth) with `new` (B, H, W, depth) at position `time`."""
    shape = tf.shape(cache)
    rows, length, depth = tf.reduce_prod(shape[:3]), shape[3], shape[4]
    where = tf.stack([tf.range(rows), tf.fill([rows], time)], axis=1)
    flat = tf.reshape(cache, [rows, length, depth])
    flat = tf.tensor_scatter_nd_update(flat, where, tf.reshape(new, [rows, depth]))
    return tf.reshape(flat, shape)
