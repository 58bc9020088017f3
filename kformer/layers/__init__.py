"""The models' building blocks, as Keras layers for any model. Masks are explicit."""

from kformer.layers.attention import KeyValues, MultiHeadAttention, scaled_dot_product_attention
from kformer.layers.decoder import Decoder, DecoderLayer, DecoderWeights
from kformer.layers.dropout import Dropout
from kformer.layers.embedding import PositionalEmbedding, sinusoidal_positions
from kformer.layers.encoder import Encoder, EncoderLayer
from kformer.layers.feed_forward import PositionwiseFeedForward
from kformer.layers.masks import causal_mask, lengths_mask, padding_mask
from kformer.layers.memory_attention import AdditiveAttention, DotProductAttention
from kformer.layers.recurrent import RecurrentLayer
from kformer.layers.recurrent_decoder import RecurrentDecoder
from kformer.layers.recurrent_encoder import RecurrentEncoder
from kformer.layers.residual import Residual
from kformer.layers.simple_attention import SimpleAttention

__all__ = [
    "AdditiveAttention",
    "Decoder",
    "DecoderLayer",
    "DecoderWeights",
    "DotProductAttention",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "KeyValues",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "PositionwiseFeedForward",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RecurrentLayer",
    "Residual",
    "SimpleAttention",
    "causal_mask",
    "lengths_mask",
    "padding_mask",
    "scaled_dot_product_attention",
    "sinusoidal_positions",
]
