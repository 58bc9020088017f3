"""The Transformer of "Attention Is All You Need", and its later variants."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import NormPosition, Positions, Tying
from kformer.layers import (
    Decoder,
    Encoder,
    KeyValues,
    PositionalEmbedding,
    causal_mask,
    padding_mask,
)
from kformer.layers.config import ArgumentsConfig
from kformer.layers.output import OutputProjection
from kformer.models.base import SequenceModel

PRESETS = {
    "base": dict(d_model=512, num_heads=8, d_ff=2048, dropout=0.1),
    "big": dict(d_model=1024, num_heads=16, d_ff=4096, dropout=0.3),
}


class Encoded(NamedTuple):
    """A source as the decoder reads it."""

    memory: tf.Tensor  # (batch, source, d_model)
    mask: tf.Tensor  # (batch, 1, 1, source), True = a real token


class DecodingState(NamedTuple):
    """All that decoding carries from step to step; every tensor has the batch first."""

    position: tf.Tensor  # (batch,)
    caches: list[KeyValues]  # of each layer: target positions so far
    memories: list[KeyValues]  # of each layer: the source
    memory_mask: tf.Tensor  # (batch, 1, 1, source)


@keras.saving.register_keras_serializable("kformer")
class Transformer(ArgumentsConfig, SequenceModel):
    """Encoder and decoder with attention only: source and target ids in, logits out.

    Args:
        source_vocab_size: number of source ids; id 0 is padding.
        target_vocab_size: number of target ids; id 0 is padding.
        d_model: width of embeddings and layers.
        num_heads: attention heads of each layer; must divide `d_model`.
        d_ff: width inside the feed-forward networks.
        num_encoder_layers: depth of the encoder.
        num_decoder_layers: depth of the decoder.
        norm: "post" as in the paper, or "pre", which trains more easily.
        activation: of the feed-forward networks, such as "relu", "gelu" or "swish".
        positions: "sinusoidal", "sinusoidal_halves", "learned" or "none".
        max_length: number of learned positions.
        attention_bias: whether the projections of attention have biases; the paper's have none.
        scale_embedding: whether embeddings are multiplied by sqrt(d_model).
        tie: "all": source embedding, target embedding and output layer are one table; "target":
            target embedding and output layer are; "none". With "all", both languages share
            learned positions too.
        output_bias: whether logits have a bias.
        dropout: share of embeddings and sub-layer outputs to drop in training.
        attention_dropout: share of attention weights to drop in training.
        activation_dropout: share of feed-forward activations to drop in training.

    Call arguments:
        inputs: a pair of integer tensors, source ids (batch, source) and target ids shifted
            right, the start token first (batch, target).
        training: whether dropout is on.

    Returns:
        float32 logits (batch, target, target_vocab_size) of the token after each target id.

    Example:
        >>> model = Transformer.from_preset("base", 37000, 37000)
        >>> model.compile("adam", MaskedCrossEntropy(label_smoothing=0.1), metrics=[Perplexity()])
        >>> model.fit(batches)  # of ((source_ids, target_ids), labels)

    Source:
        Vaswani et al., "Attention Is All You Need", 2017.
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        norm: NormPosition = "post",
        activation: str = "relu",
        positions: Positions = "sinusoidal",
        max_length: int | None = None,
        attention_bias: bool = True,
        scale_embedding: bool = True,
        tie: Tying = "all",
        output_bias: bool = False,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if tie not in Tying.__args__:
            raise ValueError(
                f"`tie` must be one of {', '.join(Tying.__args__)}. Received: tie={tie!r}"
            )
        if tie == "all" and source_vocab_size != target_vocab_size:
            raise ValueError(
                '`tie="all"` needs one vocabulary for both languages. Received: '
                f"source_vocab_size={source_vocab_size}, target_vocab_size={target_vocab_size}"
            )
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.num_encoder_layers = num_encoder_layers
        self.num_decoder_layers = num_decoder_layers
        self.norm = norm
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.attention_bias = attention_bias
        self.scale_embedding = scale_embedding
        self.tie = tie
        self.output_bias = output_bias
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout

        def embedding(vocab_size, name):
            return PositionalEmbedding(
                vocab_size,
                d_model,
                positions,
                max_length,
                scale_embedding,
                dropout,
                dtype=self.dtype_policy,
                name=name,
            )

        stack = dict(
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            norm=norm,
            activation=activation,
            use_bias=attention_bias,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
            dtype=self.dtype_policy,
        )
        self.target_embedding = embedding(target_vocab_size, "target_embedding")
        self.source_embedding = (
            self.target_embedding
            if tie == "all"
            else embedding(source_vocab_size, "source_embedding")
        )
        self.encoder = Encoder(num_encoder_layers, **stack, name="encoder")
        self.decoder = Decoder(num_decoder_layers, **stack, name="decoder")
        self.output_projection = OutputProjection(
            target_vocab_size,
            d_model,
            tied=tie != "none",
            use_bias=output_bias,
            dtype=self.dtype_policy,
            name="output_projection",
        )
        # Sizes are all known, so that a model can be counted and its weights loaded at once.
        self.build(((None, None), (None, None)))

    @classmethod
    def from_preset(
        cls, preset: str, source_vocab_size: int, target_vocab_size: int, **options
    ) -> "Transformer":
        """A model of the paper's size: "base" (about 65M parameters) or "big" (about 213M).

        Args:
            preset: "base" or "big" (table 3 of the paper, English to German).
            source_vocab_size: number of source ids.
            target_vocab_size: number of target ids.
            **options: constructor arguments that differ from the preset.
        """
        if preset not in PRESETS:
            raise ValueError(
                f"`preset` must be one of {', '.join(PRESETS)}. Received: preset={preset!r}"
            )
        return cls(source_vocab_size, target_vocab_size, **{**PRESETS[preset], **options})

    def build(self, input_shape):
        embedded = (None, None, self.d_model)
        self.target_embedding.build((None, None))
        if self.source_embedding is not self.target_embedding:
            self.source_embedding.build((None, None))
        self.encoder.build(embedded)
        self.decoder.build(embedded, embedded)
        self.output_projection.build(embedded)
        self.built = True

    def call(self, inputs, training=False):
        source_ids, target_ids = inputs
        encoded = self.encode(source_ids, training=training)
        x = self.target_embedding(target_ids, training=training)
        mask = tf.logical_and(padding_mask(target_ids), causal_mask(target_ids))
        x = self.decoder(x, encoded.memory, mask, encoded.mask, training=training)
        return self._logits(x)

    def encode(self, source_ids, training=False) -> Encoded:
        """What the decoder needs of the source: int (batch, source) in, `Encoded` out."""
        mask = padding_mask(source_ids)
        x = self.source_embedding(source_ids, training=training)
        return Encoded(self.encoder(x, mask, training=training), mask)

    def init_state(self, encoded: Encoded, max_length) -> DecodingState:
        """The state before the first step, with room for `max_length` steps."""
        batch_size = tf.shape(encoded.mask)[0]
        return DecodingState(
            position=tf.zeros([batch_size], tf.int32),
            caches=self.decoder.empty_caches(batch_size, max_length),
            memories=self.decoder.project_memory(encoded.memory),
            memory_mask=encoded.mask,
        )

    def step(self, token_ids, state: DecodingState) -> tuple[tf.Tensor, DecodingState]:
        """Reads one token of each row and gives the logits of the next.

        Args:
            token_ids: integer tensor (batch,): the start token, then what was chosen.
            state: from `init_state` or the step before.

        Returns:
            float32 logits (batch, target_vocab_size) and the new state. They equal those of the
            full pass at the same position.
        """
        x = self.target_embedding(token_ids[:, tf.newaxis], start=state.position)
        x, caches, _ = self.decoder.step(
            x, state.caches, state.position, state.memories, state.memory_mask
        )
        state = state._replace(position=state.position + 1, caches=caches)
        return self._logits(x)[:, 0], state

    def _logits(self, x):
        tied = self.tie != "none"
        return self.output_projection(x, self.target_embedding.embedding if tied else None)
