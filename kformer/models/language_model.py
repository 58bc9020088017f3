"""A decoder alone: one causal sequence, of text that goes on or of a source and its target."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import AttentionScore, NormPosition, Positions, Tying
from kformer.layers import Encoder, KeyValues, PositionalEmbedding, causal_mask, padding_mask
from kformer.layers.config import ArgumentsConfig
from kformer.layers.output import OutputProjection
from kformer.models.base import SequenceModel
from kformer.models.decoding import SentenceState, extended, first_state, written
from kformer.models.tying import check_tied_width
from kformer.search.protocol import State


class Read(NamedTuple):
    """A source as the positions after it read it."""

    memories: list[KeyValues]  # of each layer
    mask: tf.Tensor  # (batch, 1, 1, source), True = a real token


@keras.saving.register_keras_serializable("kformer")
class LanguageModel(ArgumentsConfig, SequenceModel):
    """A causal Transformer without an encoder, that translates by continuing the source.

    It reads each row's source tokens, then the start token, then its target tokens, each position
    those before it. Of a source that holds its end token only, it is a usual language model of the
    targets. What is learned is to continue: the loss is of the target alone.

    Positions count on from source to target, whatever padding lies between them.

    Args:
        vocab_size: number of ids, of source and target; id 0 is padding.
        d_model: width of embeddings and layers.
        num_heads: attention heads of each layer; must divide `d_model`.
        d_ff: width inside the feed-forward networks.
        num_decoder_layers: depth.
        norm: "pre", which trains more easily, or "post".
        activation: of the feed-forward networks, such as "relu", "gelu" or "swish".
        positions: "sinusoidal", "sinusoidal_halves" or "learned", added to embeddings; "rotary",
            rotating queries and keys; or "none".
        max_length: number of learned positions, of source and target together.
        attention_bias: whether the projections of attention have biases.
        scale_embedding: whether embeddings are multiplied by sqrt(d_model).
        tie: "all": embedding and output layer are one table; "none".
        output_bias: whether logits have a bias.
        dropout: share of embeddings and sub-layer outputs to drop in training.
        attention_dropout: share of attention weights to drop in training.
        activation_dropout: share of feed-forward activations to drop in training.
        attention: how its scores are made, "dot_product" or "additive".
        embedding_dim: width of the embedding, if another than `d_model`; needs `tie="none"`.

    Call arguments:
        inputs: a pair of integer tensors, source ids with their end token (batch, source) and
            target ids shifted right, the start token first (batch, target).
        training: whether dropout is on.

    Returns:
        float32 logits (batch, target, vocab_size) of the token after each target id.

    Example:
        >>> model = LanguageModel(8000, d_model=256, num_heads=4, d_ff=1024)
        >>> model.compile("adam", MaskedCrossEntropy(), metrics=[Perplexity()])
        >>> model.fit(batches)  # of ((source_ids, target_ids), labels)

    Source:
        Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; for
        translation Wang et al., "Language Models are Good Translators", 2021.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        num_decoder_layers: int = 6,
        norm: NormPosition = "pre",
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
        if tie not in ("all", "none"):
            raise ValueError(f'`tie` must be "all" or "none". Received: tie={tie!r}')
        check_tied_width(tie, embedding_dim, d_model)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
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
        self.embedding = PositionalEmbedding(
            vocab_size,
            d_model,
            positions,
            max_length,
            scale_embedding,
            dropout,
            embedding_dim,
            dtype=self.dtype_policy,
            name="embedding",
        )
        # Nothing but the mask tells a decoder without a source apart from an encoder.
        self.decoder = Encoder(
            num_decoder_layers,
            d_model,
            num_heads,
            d_ff,
            norm=norm,
            activation=activation,
            use_bias=attention_bias,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
            rotary=positions == "rotary",
            score=attention,
            dtype=self.dtype_policy,
            name="decoder",
        )
        self.output_projection = OutputProjection(
            vocab_size,
            d_model,
            tied=tie == "all",
            use_bias=output_bias,
            dtype=self.dtype_policy,
            name="output_projection",
        )
        # Sizes are all known, so that a model can be counted and its weights loaded at once.
        self.build(((None, None), (None, None)))

    @property
    def source_vocab_size(self) -> int:
        return self.vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self.vocab_size

    @property
    def target_embedding(self) -> PositionalEmbedding:
        return self.embedding

    @property
    def max_positions(self):
        return self.max_length if self.positions == "learned" else None

    @property
    def one_sequence(self):
        return True

    @property
    def attention_shape(self):
        return self.num_decoder_layers, self.num_heads

    def build(self, input_shape):
        embedded = (None, None, self.d_model)
        self.embedding.build((None, None))
        self.decoder.build(embedded)
        self.output_projection.build(embedded)
        self.built = True

    def call(self, inputs, training=False):
        source_ids, target_ids = inputs
        x, _ = self._decoded(source_ids, target_ids, training)
        return self._logits(x)

    def call_with_attention(self, source_ids, target_ids):
        """The logits, and how much each was made of each source token.

        Args:
            source_ids: integer tensor (batch, source).
            target_ids: integer tensor (batch, target), shifted right as for a training step.

        Returns:
            float32 logits (batch, target, vocab_size), and each layer's float32 attention
            (batch, num_heads, target, source) from target to source: 0 on padding; what a row
            lacks to a sum of 1 is attention to the target so far.
        """
        x, weights = self._decoded(source_ids, target_ids)
        source = tf.shape(source_ids)[1]
        return self._logits(x), [of_layer[:, :, source:, :source] for of_layer in weights]

    def encode(self, source_ids) -> Read:
        """What is kept of the source: int (batch, source) in, `Read` out."""
        mask = padding_mask(source_ids)
        x = self.embedding(source_ids)
        _, memories = self.decoder.remember(x, tf.logical_and(mask, causal_mask(source_ids)))
        return Read(memories, mask)

    def init_state(self, encoded: Read, width, length) -> State:
        """The state before the first step.

        Args:
            encoded: from `encode`.
            width: number of hypotheses of each sentence.
            length: number of steps there is to be room for; `extend` makes more.
        """
        sentences = SentenceState(
            caches=self.decoder.empty_caches(tf.shape(encoded.mask)[0], width, length),
            memories=encoded.memories,
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
            float32 logits (batch * width, vocab_size) and the new state. They equal those of the
            full pass at the same position.
        """
        sentences, rows = state.sentences, tf.shape(token_ids)[0]
        batch_size, source = tf.shape(sentences.mask)[0], tf.shape(sentences.mask)[3]
        width = tf.shape(sentences.caches[0].keys)[2]
        start = tf.repeat(_lengths(sentences.mask), width) + state.time
        if self.positions == "learned":
            # A finished sentence is stepped on beside others until those are done, too.
            start = tf.minimum(start, self.max_length - 1)
        x = self.embedding(token_ids[:, tf.newaxis], start=start)
        writers, seen = written(state, width)
        of_source = tf.broadcast_to(sentences.mask, [batch_size, 1, width, source])
        x, caches, weights = self.decoder.step(
            tf.reshape(x, [batch_size, width, self.d_model]),
            sentences.caches,
            state.time,
            tf.concat([of_source, seen], axis=3),
            tf.reshape(start, [batch_size, width]),
            sentences.memories,
        )
        attention = tf.reduce_mean(weights[-1][:, :, :, :source], axis=1)
        state = State(
            time=state.time + 1,
            sentences=sentences._replace(caches=caches),
            hypotheses=writers,
            attention=tf.reshape(attention, [rows, source]),
        )
        return tf.reshape(self._logits(x), [rows, self.vocab_size]), state

    def _decoded(self, source_ids, target_ids, training=False):
        """The output of the stack at the target's positions, and the attention of its layers."""
        of_source = padding_mask(source_ids)
        lengths = _lengths(of_source)
        x = tf.concat(
            [
                self.embedding(source_ids, training=training),
                self.embedding(target_ids, start=lengths, training=training),
            ],
            axis=1,
        )
        mask = tf.concat([of_source, padding_mask(target_ids)], axis=3)
        mask = tf.logical_and(mask, causal_mask(x[:, :, 0]))
        # As the embedding counts them: the target's go on from its source's.
        columns = tf.range(tf.shape(x)[1])[tf.newaxis]
        padding = tf.shape(source_ids)[1] - lengths[:, tf.newaxis]
        positions = tf.where(columns < tf.shape(source_ids)[1], columns, columns - padding)
        x, weights = self.decoder(
            x, mask, positions=positions, return_weights=True, training=training
        )
        return x[:, tf.shape(source_ids)[1] :], weights

    def _logits(self, x):
        return self.output_projection(x, self.embedding.embedding if self.tie == "all" else None)


def _lengths(mask):
    """int32 (batch,): real tokens by a padding mask (batch, 1, 1, length)."""
    return tf.math.count_nonzero(mask[:, 0, 0], axis=1, dtype=tf.int32)
