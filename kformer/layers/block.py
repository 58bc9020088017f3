"""What encoder and decoder have in common: the sub-layers of a layer, and a stack of layers."""

from typing import ClassVar

import keras

from kformer.choices import AttentionScore, NormPosition
from kformer.layers.attention import KeyValues, MultiHeadAttention
from kformer.layers.config import ArgumentsConfig
from kformer.layers.feed_forward import PositionwiseFeedForward
from kformer.layers.residual import Residual


class Block(ArgumentsConfig, keras.layers.Layer):
    """Self-attention and a feed-forward network, each inside a `Residual`.

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
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        norm: NormPosition = "pre",
        activation: str = "relu",
        use_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        rotary: bool = False,
        score: AttentionScore = "dot_product",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.norm = norm
        self.activation = activation
        self.use_bias = use_bias
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.rotary = rotary
        self.score = score
        self.self_attention = self._attention("self_attention", rotary)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.feed_forward = PositionwiseFeedForward(
            d_model,
            d_ff,
            activation,
            activation_dropout,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)
        self.built = True

    def _attend_to_self(self, x, attention_mask, training, positions=None):
        """The first sub-layer: `x` after it, and the attention weights."""
        residual = self.self_attention_residual
        attended, weights = self.self_attention(
            residual.prepare(x),
            attention_mask=attention_mask,
            positions=positions,
            return_weights=True,
            training=training,
        )
        return residual(x, attended, training=training), weights

    def _feed_forward(self, x, training=False):
        """The last sub-layer: `x` after it."""
        residual = self.feed_forward_residual
        hidden = self.feed_forward(residual.prepare(x), training=training)
        return residual(x, hidden, training=training)

    def _attention(self, name, rotary=False):
        return MultiHeadAttention(
            self.d_model,
            self.num_heads,
            self.attention_dropout,
            self.use_bias,
            rotary,
            self.score,
            dtype=self.dtype_policy,
            name=name,
        )

    def _residual(self, name):
        return Residual(self.norm, self.dropout, dtype=self.dtype_policy, name=name)


class Stack(ArgumentsConfig, keras.layers.Layer):
    """`num_layers` blocks of one kind; in pre-norm, whose sums nothing has normalised yet, a last
    norm closes them.

    Args:
        num_layers: depth of the stack.
        d_model, num_heads, d_ff, norm, activation, use_bias, dropout, attention_dropout,
            activation_dropout, rotary, score: of each block.
    """

    block_class: ClassVar[type[Block]]

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        norm: NormPosition = "pre",
        activation: str = "relu",
        use_bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        rotary: bool = False,
        score: AttentionScore = "dot_product",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.norm = norm
        self.activation = activation
        self.use_bias = use_bias
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.rotary = rotary
        self.score = score
        self.layers = [
            self.block_class(
                d_model,
                num_heads,
                d_ff,
                norm=norm,
                activation=activation,
                use_bias=use_bias,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation_dropout=activation_dropout,
                rotary=rotary,
                score=score,
                dtype=self.dtype_policy,
                name=f"layer_{index}",
            )
            for index in range(num_layers)
        ]
        if norm == "pre":
            self.final_norm = keras.layers.LayerNormalization(
                epsilon=1e-6, dtype=self.dtype_policy, name="final_norm"
            )
        else:
            self.final_norm = keras.layers.Identity(dtype=self.dtype_policy, name="final_norm")

    def empty_caches(self, batch_size, width, length) -> list[KeyValues]:
        """Each layer's room for `length` positions of `width` hypotheses of each sentence."""
        return [
            layer.self_attention.empty_cache(batch_size, width, length) for layer in self.layers
        ]

    def _build(self, x_shape, *other_shapes):
        for layer in self.layers:
            layer.build(x_shape, *other_shapes)
        self.final_norm.build(x_shape)
        self.built = True
