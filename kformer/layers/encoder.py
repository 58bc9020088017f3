"""The encoder: self-attention over the source and a feed-forward network, layer upon layer."""

import keras

from kformer.layers.block import Block, Stack


@keras.saving.register_keras_serializable("kformer")
class EncoderLayer(Block):
    """Self-attention, then a feed-forward network, each inside a `Residual`.

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
        x: float tensor (batch, length, d_model).
        attention_mask: boolean tensor that broadcasts to (batch, num_heads, length, length),
            True = attend.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor like `x`, or with `return_weights` a pair with the weights
        (batch, num_heads, length, length).

    Example:
        >>> layer = EncoderLayer(d_model=64, num_heads=4, d_ff=256, dropout=0.1)
        >>> layer(x, attention_mask=padding_mask(ids))

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.1.
    """

    def call(self, x, attention_mask=None, return_weights=False, training=False):
        x, weights = self._attend_to_self(x, attention_mask, training)
        x = self._feed_forward(x, training)
        return (x, weights) if return_weights else x


@keras.saving.register_keras_serializable("kformer")
class Encoder(Stack):
    """A stack of `EncoderLayer`s; in pre-norm a last norm closes it.

    Args:
        num_layers: depth of the stack.
        d_model, num_heads, d_ff, norm, activation, use_bias, dropout, attention_dropout,
            activation_dropout, rotary, score: as for `EncoderLayer`.

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

    block_class = EncoderLayer

    def build(self, x_shape):
        self._build(x_shape)

    def call(self, x, attention_mask=None, return_weights=False, training=False):
        all_weights = []
        for layer in self.layers:
            x, weights = layer(
                x, attention_mask=attention_mask, return_weights=True, training=training
            )
            all_weights.append(weights)
        x = self.final_norm(x)
        return (x, all_weights) if return_weights else x
