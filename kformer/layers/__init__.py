"""The Transformer's building blocks, as Keras layers for any model. Masks are explicit."""

from kformer.layers.attention import KeyValues, MultiHeadAttention, scaled_dot_product_attention
from kformer.layers.decoder import Decoder, DecoderLayer, DecoderWeights
from kformer.layers.dropout import Dropout
from kformer.layers.embedding import PositionalEmbedding, sinusoidal_positions
from kformer.layers.encoder import Encoder, EncoderLayer
from kformer.layers.feed_forward import PositionwiseFeedForward
from kformer.layers.masks import causal_mask, padding_mask
from kformer.layers.residual import Residual
from kformer.layers.simple_attention import SimpleAttention

__all__ = [
    "Decoder",
    "DecoderLayer",
    "DecoderWeights",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "KeyValues",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "PositionwiseFeedForward",
    "Residual",
    "SimpleAttention",
    "causal_mask",
    "padding_mask",
    "scaled_dot_product_attention",
    "sinusoidal_positions",
]
