"""The decoder: self-attention over the target so far, attention to the encoded source, and a
feed-forward network, layer upon layer."""

from typing import NamedTuple

import keras

from kformer.layers.attention import KeyValues
from kformer.layers.block import Block, Stack


class DecoderWeights(NamedTuple):
    """Attention weights of one decoder layer, (batch, num_heads, target, target or source)."""

    self_attention: object
    cross_attention: object


@keras.saving.register_keras_serializable("kformer")
class DecoderLayer(Block):
    """Self-attention, attention to the encoder's output, then a feed-forward network, each
    inside a `Residual`.

    Args:
        d_model: width of inputs and outputs.
        num_heads: number of attention heads; must divide `d_model`.
        d_ff: width inside the feed-forward network.
        norm: "pre" or "post" (see `Residual`).
        activation: of the feed-forward network.
        use_bias: whether the projections of attention add a bias.
        dropout: share of each sub-layer's output to drop in training.
        attention_dropout: share of the attention weights to drop in training.
        activation_dropout: share of the feed-forward activations to drop in training.
        rotary: whether self-attention rotates queries and keys by their positions.
        score: of attention, "dot_product" or "additive" (see `MultiHeadAttention`).

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

    def __init__(self, d_model: int, num_heads: int, d_ff: int, **kwargs):
        super().__init__(d_model, num_heads, d_ff, **kwargs)
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_residual = self._residual("cross_attention_residual")

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)
        self.cross_attention.build(x_shape, memory_shape or x_shape)
        self.cross_attention_residual.build(x_shape)

    def call(
        self,
        x,
        memory,
        attention_mask=None,
        cross_attention_mask=None,
        return_weights=False,
        training=False,
    ):
        x, self_weights = self._attend_to_self(x, attention_mask, training)
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

    def step(self, x, cache: KeyValues, time, seen, memory: KeyValues, cross_attention_mask=None):
        """The newest position of each hypothesis, as `call` would compute it after all so far.

        Args:
            x: float tensor (batch, width, d_model), a position of each of `width` hypotheses.
            cache, time, seen: as for `MultiHeadAttention.step`.
            memory: keys and values of the source, from `cross_attention.project_memory`.
            cross_attention_mask: boolean tensor that broadcasts to (batch, num_heads, 1, source).

        Returns:
            A tensor like `x`, the cache with the new positions, and the cross-attention weights
            (batch, num_heads, width, source).
        """
        residual = self.self_attention_residual
        attended, cache, _ = self.self_attention.step(residual.prepare(x), cache, time, seen)
        x = residual(x, attended)
        residual = self.cross_attention_residual
        attended, weights = self.cross_attention.attend(
            residual.prepare(x), memory, cross_attention_mask
        )
        x = residual(x, attended)
        return self._feed_forward(x), cache, weights


@keras.saving.register_keras_serializable("kformer")
class Decoder(Stack):
    """A stack of `DecoderLayer`s; in pre-norm a last norm closes it.

    Args:
        num_layers: depth of the stack.
        d_model, num_heads, d_ff, norm, activation, use_bias, dropout, attention_dropout,
            activation_dropout, rotary, score: as for `DecoderLayer`.

    Call arguments:
        x: embedded target, float tensor (batch, target, d_model).
        memory, attention_mask, cross_attention_mask, training: as for `DecoderLayer`.
        return_weights: whether to return the attention weights too.

    Returns:
        A tensor like `x`, or with `return_weights` a pair with a list of each layer's
        `DecoderWeights`.
    """

    block_class = DecoderLayer

    def build(self, x_shape, memory_shape=None):
        self._build(x_shape, memory_shape)

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

    def step(self, x, caches, time, seen, memories, cross_attention_mask=None):
        """The newest position of each hypothesis through all layers (see `DecoderLayer.step`).

        Returns:
            A tensor like `x` (batch, width, d_model), the layers' caches and the layers'
            cross-attention weights (batch, num_heads, width, source).
        """
        new_caches, all_weights = [], []
        for layer, cache, memory in zip(self.layers, caches, memories, strict=True):
            x, cache, weights = layer.step(x, cache, time, seen, memory, cross_attention_mask)
            new_caches.append(cache)
            all_weights.append(weights)
        return self.final_norm(x), new_caches, all_weights
