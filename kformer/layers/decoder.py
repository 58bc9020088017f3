"""The decoder: self-attention over the target so far, attention to the encoded source, and a
feed-forward network, layer upon layer."""

from typing import NamedTuple

import keras

from kformer.choices import NormPosition
from kformer.layers.attention import KeyValues, MultiHeadAttention
from kformer.layers.config import ArgumentsConfig
from kformer.layers.encoder import final_norm
from kformer.layers.feed_forward import PositionwiseFeedForward
from kformer.layers.residual import Residual


class DecoderWeights(NamedTuple):
    """Attention weights of one decoder layer, (batch, num_heads, target, target or source)."""

    self_attention: object
    cross_attention: object


@keras.saving.register_keras_serializable("kformer")
class DecoderLayer(ArgumentsConfig, keras.layers.Layer):
    """Self-attention, attention to the encoder's output, then a feed-forward network, each
    inside a `Residual`.

    Args:
        d_model: width of inputs and outputs.
        num_heads: number of attention heads; must divide `d_model`.
        d_ff: width inside the feed-forward network.
        norm: "pre" or "post" (see `Residual`).
        activation: of the feed-forward network.
        dropout: share of each sub-layer's output to drop in training.
        attention_dropout: share of the attention weights to drop in training.
        activation_dropout: share of the feed-forward activations to drop in training.

    Call arguments:
        x: float tensor (batch, target, d_model).
        memory: the encoder's output, float tensor (batch, source, d_model).
        attention_mask: boolean tensor that broadcasts to (batch, num_heads, target, target),
            True = attend; without a causal mask in it, positions see their future.
        cross_attention_mask: boolean tensor that broadcasts to (batch, num_heads, target, source).
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor like `x`, or with `return_weights` a pair with `DecoderWeights`.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.1.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        norm: NormPosition = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.norm = norm
        self.activation = activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        dtype = self.dtype_policy
        self.self_attention = MultiHeadAttention(
            d_model, num_heads, attention_dropout, dtype=dtype, name="self_attention"
        )
        self.self_attention_residual = Residual(
            norm, dropout, dtype=dtype, name="self_attention_residual"
        )
        self.cross_attention = MultiHeadAttention(
            d_model, num_heads, attention_dropout, dtype=dtype, name="cross_attention"
        )
        self.cross_attention_residual = Residual(
            norm, dropout, dtype=dtype, name="cross_attention_residual"
        )
        self.feed_forward = PositionwiseFeedForward(
            d_model, d_ff, activation, activation_dropout, dtype=dtype, name="feed_forward"
        )
        self.feed_forward_residual = Residual(
            norm, dropout, dtype=dtype, name="feed_forward_residual"
        )

    def build(self, x_shape, memory_shape=None):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.cross_attention.build(x_shape, memory_shape or x_shape)
        self.cross_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        memory,
        attention_mask=None,
        cross_attention_mask=None,
        return_weights=False,
        training=False,
    ):
        residual = self.self_attention_residual
        attended, self_weights = self.self_attention(
            residual.prepare(x),
            attention_mask=attention_mask,
            return_weights=True,
            training=training,
        )
        x = residual(x, attended, training=training)
        residual = self.cross_attention_residual
        attended, cross_weights = self.cross_attention(
            residual.prepare(x),
            memory,
            attention_mask=cross_attention_mask,
            return_weights=True,
            training=training,
        )
        x = residual(x, attended, training=training)
        x = self._feed_forward(x, training)
        return (x, DecoderWeights(self_weights, cross_weights)) if return_weights else x

    def step(self, x, cache: KeyValues, position, memory: KeyValues, cross_attention_mask=None):
        """One new position, as `call` would compute it at the end of all positions so far.

        Args:
            x: float tensor (batch, 1, d_model).
            cache: keys and values of the positions so far (see `MultiHeadAttention.step`).
            position: integer tensor (batch,), from 0.
            memory: keys and values of the source, from `cross_attention.project_memory`.
            cross_attention_mask: boolean tensor that broadcasts to (batch, num_heads, 1, source).

        Returns:
            A tensor like `x`, the cache with the new position, and the cross-attention weights
            (batch, num_heads, 1, source).
        """
        residual = self.self_attention_residual
        attended, cache = self.self_attention.step(residual.prepare(x), cache, position)
        x = residual(x, attended)
        residual = self.cross_attention_residual
        attended, weights = self.cross_attention.attend(
            residual.prepare(x), memory, cross_attention_mask
        )
        x = residual(x, attended)
        return self._feed_forward(x), cache, weights

    def _feed_forward(self, x, training=False):
        residual = self.feed_forward_residual
        hidden = self.feed_forward(residual.prepare(x), training=training)
        return residual(x, hidden, training=training)

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape


@keras.saving.register_keras_serializable("kformer")
class Decoder(ArgumentsConfig, keras.layers.Layer):
    """A stack of `DecoderLayer`s; in pre-norm a last norm closes it.

    Args:
        num_layers: depth of the stack.
        d_model, num_heads, d_ff, norm, activation, dropout, attention_dropout,
            activation_dropout: as for `DecoderLayer`.

    Call arguments:
        x: embedded target, float tensor (batch, target, d_model).
        memory, attention_mask, cross_attention_mask, training: as for `DecoderLayer`.
        return_weights: whether to return the attention weights too.

    Returns:
        A tensor like `x`, or with `return_weights` a pair with a list of each layer's
        `DecoderWeights`.
    """

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        norm: NormPosition = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.norm = norm
        self.activation = activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.layers = [
            DecoderLayer(
                d_model,
                num_heads,
                d_ff,
                norm,
                activation,
                dropout,
                attention_dropout,
                activation_dropout,
                dtype=self.dtype_policy,
                name=f"layer_{index}",
            )
            for index in range(num_layers)
        ]
        self.final_norm = final_norm(norm, self.dtype_policy)

    def build(self, x_shape, memory_shape=None):
        for layer in self.layers:
            layer.build(x_shape, memory_shape)
        self.final_norm.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        memory,
        attention_mask=None,
        cross_attention_mask=None,
        return_weights=False,
        training=False,
    ):
        all_weights = []
        for layer in self.layers:
            x, weights = layer(
                x,
                memory,
                attention_mask=attention_mask,
                cross_attention_mask=cross_attention_mask,
                return_weights=True,
                training=training,
            )
            all_weights.append(weights)
        x = self.final_norm(x)
        return (x, all_weights) if return_weights else x

    def project_memory(self, memory) -> list[KeyValues]:
        """Each layer's keys and values of the source, computed once for all steps."""
        return [layer.cross_attention.project_memory(memory) for layer in self.layers]

    def empty_caches(self, batch_size, max_length) -> list[KeyValues]:
        """Each layer's room for `max_length` target positions."""
        return [layer.self_attention.empty_cache(batch_size, max_length) for layer in self.layers]

    def step(self, x, caches, position, memories, cross_attention_mask=None):
        """One new position through all layers (see `DecoderLayer.step`).

        Returns:
            A tensor like `x` (batch, 1, d_model), the layers' caches and the layers'
            cross-attention weights (batch, num_heads, 1, source).
        """
        new_caches, all_weights = [], []
        for layer, cache, memory in zip(self.layers, caches, memories, strict=True):
            x, cache, weights = layer.step(x, cache, position, memory, cross_attention_mask)
            new_caches.append(cache)
            all_weights.append(weights)
        return self.final_norm(x), new_caches, all_weights

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape
