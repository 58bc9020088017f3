"""The Transformer of "Attention Is All You Need", and its later variants."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import AttentionScore, NormPosition, Positions, Tying
from kformer.layers import (
    Decoder,
    Encoder,
    PositionalEmbedding,
    causal_mask,
    padding_mask,
)
from kformer.layers.config import ArgumentsConfig
from kformer.layers.output import OutputProjection
from kformer.models.decoding import SentenceState, extended, first_state, written
from kformer.models.encoder_decoder import EncoderDecoder
from kformer.models.tying import check_tied_width, check_tying
from kformer.search.protocol import State

PRESETS = {
    "base": dict(d_model=512, num_heads=8, d_ff=2048, dropout=0.1),
    "big": dict(d_model=1024, num_heads=16, d_ff=4096, dropout=0.3),
}


class Encoded(NamedTuple):
    """A source as the decoder reads it."""

    memory: tf.Tensor  # (batch, source, d_model)
    mask: tf.Tensor  # (batch, 1, 1, source), True = a real token


@keras.saving.register_keras_serializable("kformer")
class Transformer(ArgumentsConfig, EncoderDecoder):
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
        positions: "sinusoidal", "sinusoidal_halves" or "learned", added to embeddings; "rotary",
            rotating queries and keys of self-attention; or "none".
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
        attention: how its scores are made, "dot_product" or "additive".
        embedding_dim: width of both embeddings, if another than `d_model`, as that of pretrained
            vectors; needs `tie="none"`. None: `d_model`.

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
        attention: AttentionScore = "dot_product",
        embedding_dim: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_tying(tie, source_vocab_size, target_vocab_size)
        check_tied_width(tie, embedding_dim, d_model)
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
        self.attention = attention
        self.embedding_dim = embedding_dim

        def embedding(vocab_size, name):
            return PositionalEmbedding(
                vocab_size,
                d_model,
                positions,
                max_length,
                scale_embedding,
                dropout,
                embedding_dim,
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
            rotary=positions == "rotary",
            score=attention,
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

    @property
    def max_positions(self):
        return self.max_length if self.positions == "learned" else None

    @property
    def attention_shape(self):
        return self.num_decoder_layers, self.num_heads

    def build(self, input_shape):
        embedded = (None, None, self.d_model)
        self.target_embedding.build((None, None))
        if self.source_embedding is not self.target_embedding:
            self.source_embedding.build((None, None))
        self.encoder.build(embedded)
        self.decoder.build(embedded, embedded)
        self.output_projection.build(embedded)
        self.built = True

    def encode(self, source_ids, training=False) -> Encoded:
        """What the decoder needs of the source: int (batch, source) in, `Encoded` out."""
        mask = padding_mask(source_ids)
        x = self.source_embedding(source_ids, training=training)
        return Encoded(self.encoder(x, mask, training=training), mask)

    def decode(self, encoded: Encoded, target_ids, training=False):
        """Float32 logits (batch, target, target_vocab_size) of the token after each target id."""
        x, _ = self._decoded(encoded, target_ids, training)
        return self._logits(x)

    def init_state(self, encoded: Encoded, width, length) -> State:
        """The state before the first step.

        Args:
            encoded: from `encode`.
            width: number of hypotheses of each sentence.
            length: number of steps there is to be room for; `extend` makes more.
        """
        sentences = SentenceState(
            caches=self.decoder.empty_caches(tf.shape(encoded.mask)[0], width, length),
            memories=self.decoder.project_memory(encoded.memory),
            mask=encoded.mask,
        )
        return first_state(sentences, width, length)

    def extend(self, state: State, steps) -> State:
        """The state with room for so many more steps."""
        return extended(state, steps)

    def step(self, token_ids, state: State) -> tuple[tf.Tensor, State]:
        """Reads one token of each hypothesis and gives the logits of the next.

        Args:
            token_ids: integer tensor (batch * width,): the start token, then what was chosen.
            state: from `init_state`, or the step before with its hypotheses reordered.

        Returns:
            float32 logits (batch * width, target_vocab_size) and the new state. They equal those
            of the full pass at the same position.
        """
        source, time = state.sentences, state.time
        rows, width = tf.shape(token_ids)[0], tf.shape(source.caches[0].keys)[2]
        x = self.target_embedding(token_ids[:, tf.newaxis], start=time)
        x = tf.reshape(x, [-1, width, self.d_model])
        writers, seen = written(state, width)
        x, caches, weights = self.decoder.step(
            x,
            source.caches,
            time,
            seen,
            source.memories,
            source.mask,
        )
        state = State(
            time=time + 1,
            sentences=source._replace(caches=caches),
            hypotheses=writers,
            attention=tf.reshape(
                tf.reduce_mean(weights[-1], axis=1), [rows, tf.shape(source.mask)[3]]
            ),
        )
        return tf.reshape(self._logits(x), [rows, self.target_vocab_size]), state

    def call_with_attention(self, source_ids, target_ids):
        """The logits, and how much each was made of each source token.

        Args:
            source_ids: integer tensor (batch, source).
            target_ids: integer tensor (batch, target), shifted right as for a training step.

        Returns:
            float32 logits (batch, target, target_vocab_size), and each decoder layer's float32
            attention (batch, num_heads, target, source): a row sums to 1 over the tokens of the
            source, and is 0 on padding.
        """
        x, weights = self._decoded(self.encode(source_ids), target_ids)
        return self._logits(x), [of_layer.cross_attention for of_layer in weights]

    def _decoded(self, encoded: Encoded, target_ids, training=False):
        """The decoder's output and the attention weights of its layers."""
        mask = tf.logical_and(padding_mask(target_ids), causal_mask(target_ids))
        return self.decoder(
            self.target_embedding(target_ids, training=training),
            encoded.memory,
            mask,
            encoded.mask,
            return_weights=True,
            training=training,
        )
