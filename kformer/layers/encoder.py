"""The encoder: self-attention over the source and a feed-forward network, layer upon layer."""

import keras

from kformer.choices import NormPosition
from kformer.layers.attention import MultiHeadAttention
from kformer.layers.config import ArgumentsConfig
from kformer.layers.feed_forward import PositionwiseFeedForward
from kformer.layers.residual import Residual


@keras.saving.register_keras_serializable("kformer")
class EncoderLayer(ArgumentsConfig, keras.layers.Layer):
    """Self-attention, then a feed-forward network, each inside a `Residual`.

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
        x: float tensor (batch, length, d_model).
        attention_mask: boolean tensor that broadcasts to (batch, num_heads, length, length),
            True = attend.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor like `x`, or with `return_weights` a pair with the weights
        (batch, num_heads, length, length).

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
        self.feed_forward = PositionwiseFeedForward(
            d_model, d_ff, activation, activation_dropout, dtype=dtype, name="feed_forward"
        )
        self.feed_forward_residual = Residual(
            norm, dropout, dtype=dtype, name="feed_forward_residual"
        )

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)
        self.built = True

    def call(self, x, attention_mask=None, return_weights=False, training=False):
        residual = self.self_attention_residual
        attended, weights = self.self_attention(
            residual.prepare(x),
            attention_mask=attention_mask,
            return_weights=True,
            training=training,
        )
        x = residual(x, attended, training=training)
        residual = self.feed_forward_residual
        hidden = self.feed_forward(residual.prepare(x), training=training)
        x = residual(x, hidden, training=training)
        return (x, weights) if return_weights else x

    def compute_output_shape(self, x_shape):
        return x_shape


@keras.saving.register_keras_serializable("kformer")
class Encoder(ArgumentsConfig, keras.layers.Layer):
    """A stack of `EncoderLayer`s; in pre-norm a last norm closes it.

    Args:
        num_layers: depth of the stack.
        d_model, num_heads, d_ff, norm, activation, dropout, attention_dropout,
            activation_dropout: as for `EncoderLayer`.

    Call arguments:
        x: embedded source, float tensor (batch, length, d_model).
        attention_mask: boolean tensor that broadcasts to (batch, num_heads, length, length),
            True = attend.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor like `x`, or with `return_weights` a pair with a list of each layer's weights
        (batch, num_heads, length, length).
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
            EncoderLayer(
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

    def build(self, x_shape):
        for layer in self.layers:
            layer.build(x_shape)
        self.final_norm.build(x_shape)
        self.built = True

    def call(self, x, attention_mask=None, return_weights=False, training=False):
        all_weights = []
        for layer in self.layers:
            x, weights = layer(
                x, attention_mask=attention_mask, return_weights=True, training=training
            )
            all_weights.append(weights)
        x = self.final_norm(x)
        return (x, all_weights) if return_weights else x

    def compute_output_shape(self, x_shape):
        return x_shape


def final_norm(norm: NormPosition, dtype) -> keras.layers.Layer:
    """What closes a stack: a norm in pre-norm, whose sums nothing has normalised yet."""
    if norm == "post":
        return keras.layers.Identity(dtype=dtype, name="final_norm")
    return keras.layers.LayerNormalization(epsilon=1e-6, dtype=dtype, name="final_norm")
