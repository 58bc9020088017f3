"""The recurrent encoder and decoder, LSTM or GRU, with or without attention."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import AttentionKind, Cell, Tying
from kformer.ids import PAD_ID
from kformer.layers import KeyValues, PositionalEmbedding, RecurrentDecoder, RecurrentEncoder
from kformer.layers.config import ArgumentsConfig
from kformer.layers.output import OutputProjection
from kformer.models.encoder_decoder import EncoderDecoder
from kformer.models.tying import check_tied_width, check_tying
from kformer.search.protocol import State


class Encoded(NamedTuple):
    """A source as the decoder reads it."""

    memory: tf.Tensor  # (batch, source, d_model)
    mask: tf.Tensor  # (batch, source), True = a real token
    states: list[tuple[tf.Tensor, ...]]  # of each layer, after the last real token


class SentenceState(NamedTuple):
    """What decoding with attention keeps of each sentence; a search never reorders it."""

    memory: KeyValues  # (batch, source, d_model) each
    mask: tf.Tensor  # (batch, 1, source)


@keras.saving.register_keras_serializable("kformer")
class Recurrent(ArgumentsConfig, EncoderDecoder):
    """An encoder and a decoder of LSTMs or GRUs: source and target ids in, logits out.

    The decoder begins with the encoder's states after the last real source token: its top layer
    with those of the top one, and so on downwards. Where the encoder is less deep, the decoder's
    layers below begin with those of its lowest. With attention the decoder also looks at all
    outputs of the encoder, at each step (see `RecurrentDecoder`).

    Args:
        source_vocab_size: number of source ids; id 0 is padding.
        target_vocab_size: number of target ids; id 0 is padding.
        d_model: width of states, outputs and embeddings.
        embedding_dim: width of the embeddings, where it is another. None: `d_model`.
        num_encoder_layers: depth of the encoder.
        num_decoder_layers: depth of the decoder.
        cell: "lstm" or "gru".
        bidirectional: whether the source is read in both directions, each `d_model` / 2 wide.
        attention: "dot_product", "additive" or "none".
        input_feeding: whether the decoder reads its last attentional output with each token.
        tie: "all": source embedding, target embedding and output layer are one table; "target":
            target embedding and output layer are; "none".
        output_bias: whether logits have a bias.
        dropout: share of embeddings and layers' outputs to drop in training.

    Call arguments:
        inputs: a pair of integer tensors, source ids (batch, source) and target ids shifted
            right, the start token first (batch, target).
        training: whether dropout is on.

    Returns:
        float32 logits (batch, target, target_vocab_size) of the token after each target id.

    Example:
        >>> model = Recurrent(8000, 8000, d_model=512, bidirectional=True, attention="additive")
        >>> model.compile("adam", MaskedCrossEntropy(label_smoothing=0.1), metrics=[Perplexity()])
        >>> model.fit(batches)  # of ((source_ids, target_ids), labels)

    Source:
        Sutskever et al., "Sequence to Sequence Learning with Neural Networks", 2014; Bahdanau et
        al., "Neural Machine Translation by Jointly Learning to Align and Translate", 2015; Luong
        et al., "Effective Approaches to Attention-based Neural Machine Translation", 2015.
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        d_model: int = 512,
        embedding_dim: int | None = None,
        num_encoder_layers: int = 2,
        num_decoder_layers: int = 2,
        cell: Cell = "lstm",
        bidirectional: bool = False,
        attention: AttentionKind = "dot_product",
        input_feeding: bool = False,
        tie: Tying = "all",
        output_bias: bool = False,
        dropout: float = 0.1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_tying(tie, source_vocab_size, target_vocab_size)
        check_tied_width(tie, embedding_dim, d_model)
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.d_model = d_model
        self.embedding_dim = embedding_dim
        self.num_encoder_layers = num_encoder_layers
        self.num_decoder_layers = num_decoder_layers
        self.cell = cell
        self.bidirectional = bidirectional
        self.attention = attention
        self.input_feeding = input_feeding
        self.tie = tie
        self.output_bias = output_bias
        self.dropout = dropout

        def embedding(vocab_size, name):
            return PositionalEmbedding(
                vocab_size,
                embedding_dim or d_model,
                positions="none",
                dropout=dropout,
                dtype=self.dtype_policy,
                name=name,
            )

        self.target_embedding = embedding(target_vocab_size, "target_embedding")
        self.source_embedding = (
            self.target_embedding
            if tie == "all"
            else embedding(source_vocab_size, "source_embedding")
        )
        self.encoder = RecurrentEncoder(
            num_encoder_layers,
            d_model,
            cell,
            bidirectional,
            dropout,
            dtype=self.dtype_policy,
            name="encoder",
        )
        self.decoder = RecurrentDecoder(
            num_decoder_layers,
            d_model,
            cell,
            attention,
            input_feeding,
            dropout,
            dtype=self.dtype_policy,
            name="decoder",
        )
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

    @property
    def attention_shape(self):
        return (0, 0) if self.attention == "none" else (1, 1)

    def build(self, input_shape):
        embedded = (None, None, self.embedding_dim or self.d_model)
        encoded = (None, None, self.d_model)
        self.target_embedding.build((None, None))
        if self.source_embedding is not self.target_embedding:
            self.source_embedding.build((None, None))
        self.encoder.build(embedded)
        self.decoder.build(embedded, encoded)
        self.output_projection.build(encoded)
        self.built = True

    def encode(self, source_ids, training=False) -> Encoded:
        """What the decoder needs of the source: int (batch, source) in, `Encoded` out."""
        mask = tf.not_equal(source_ids, PAD_ID)
        x = self.source_embedding(source_ids, training=training)
        memory, states = self.encoder(x, mask, return_states=True, training=training)
        return Encoded(memory, mask, states)

    def decode(self, encoded: Encoded, target_ids, training=False):
        """Float32 logits (batch, target, target_vocab_size) of the token after each target id."""
        return self._logits(self._decoded(encoded, target_ids, training=training))

    def init_state(self, encoded: Encoded, width, length) -> State:
        """The state before the first step.

        Args:
            encoded: from `encode`.
            width: number of hypotheses of each sentence.
            length: number of steps there is to be room for; any number has.
        """
        batch_size, source = tf.unstack(tf.shape(encoded.mask))
        state = self.decoder.begin(batch_size, encoded.states)
        sentences = ()
        if self.attention == "none":
            source = 0
        else:
            sentences = SentenceState(
                self.decoder.project_memory(encoded.memory), encoded.mask[:, tf.newaxis]
            )
        return State(
            time=tf.constant(0),
            sentences=sentences,
            hypotheses=tf.nest.map_structure(lambda tensor: tf.repeat(tensor, width, 0), state),
            attention=tf.zeros([batch_size * width, source]),
        )

    def extend(self, state: State, steps) -> State:
        """The state with room for so many more steps: it needs none."""
        return state

    def step(self, token_ids, state: State) -> tuple[tf.Tensor, State]:
        """Reads one token of each hypothesis and gives the logits of the next.

        Args:
            token_ids: integer tensor (batch * width,): the start token, then what was chosen.
            state: from `init_state`, or the step before with its hypotheses reordered.

        Returns:
            float32 logits (batch * width, target_vocab_size) and the new state. They equal those
            of the full pass at the same position.
        """
        x = self.target_embedding(token_ids[:, tf.newaxis])[:, 0]
        output, hypotheses, attended = self.decoder.step(x, state.hypotheses, *state.sentences)
        state = state._replace(
            time=state.time + 1,
            hypotheses=hypotheses,
            attention=state.attention if attended is None else attended,
        )
        return self._logits(output[:, tf.newaxis])[:, 0], state

    def call_with_attention(self, source_ids, target_ids):
        """The logits, and how much each was made of each source token.

        Args:
            source_ids: integer tensor (batch, source).
            target_ids: integer tensor (batch, target), shifted right as for a training step.

        Returns:
            float32 logits (batch, target, target_vocab_size), and a list of the decoder's one
            float32 attention (batch, 1, target, source), empty without attention: a row sums to 1
            over the tokens of the source, and is 0 on padding.
        """
        x, weights = self._decoded(self.encode(source_ids), target_ids, return_weights=True)
        return self._logits(x), [] if weights is None else [weights[:, tf.newaxis]]

    def _decoded(self, encoded: Encoded, target_ids, return_weights=False, training=False):
        """The decoder's output, with `return_weights` a pair with the attention weights."""
        return self.decoder(
            self.target_embedding(target_ids, training=training),
            encoded.memory,
            encoded.mask[:, tf.newaxis],
            encoded.states,
            return_weights=return_weights,
            training=training,
        )
