"""A stack of recurrent layers over the target, with or without attention to the source."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import AttentionKind, Cell
from kformer.layers.attention import KeyValues
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout
from kformer.layers.memory_attention import AdditiveAttention, DotProductAttention
from kformer.layers.recurrent import (
    GATES,
    STEPS,
    CellWeights,
    RecurrentLayer,
    glorot_of_gates,
    over_time,
    projected,
)


class DecoderState(NamedTuple):
    """What the decoder carries from one position to the next, float32 tensors (rows, d_model)."""

    layers: list[tuple[tf.Tensor, ...]]  # the state of each layer, its output first
    fed: tuple[tf.Tensor, ...]  # the last attentional output where it is fed back, else nothing


class _Weights(NamedTuple):
    """The decoder's weights, read and cast once for all positions."""

    layers: list[CellWeights]
    context: tf.Tensor | None  # (memory_width [+ d_model], gates * d_model)
    attentional: tf.Tensor | None  # (memory_width + d_model, d_model)


@keras.saving.register_keras_serializable("kformer")
class RecurrentDecoder(ArgumentsConfig, keras.layers.Layer):
    """`num_layers` LSTMs or GRUs over the target, which may attend to the source.

    With attention the top layer's state after the last position is the query. The context that it
    finds joins the input of the lowest layer, and then, with the new state h of the top layer,
    makes the output tanh(W [context; h]). Without attention the output is h, and all that is
    known of the source is the state that decoding begins with.

    Args:
        num_layers: depth of the stack.
        d_model: width of states and outputs.
        cell: "lstm" or "gru".
        attention: "dot_product", "additive" or "none".
        input_feeding: whether the last output joins the lowest layer's input too.
        dropout: share of each layer's output, and of the decoder's, to drop in training.

    Call arguments:
        x: embedded target, float tensor (batch, target, width).
        memory: the encoder's output, float tensor (batch, source, memory_width); None without
            attention.
        attention_mask: boolean tensor that broadcasts to (batch, 1, source), True = attend.
        initial_states: the last states of the encoder's layers, as `RecurrentEncoder` returns
            them, of width `d_model`. The top layer begins with that of the top one, and so on
            downwards; where the encoder is less deep, layers below begin with its lowest. None:
            zeros.
        return_weights: whether to return the attention weights too.
        training: whether dropout is on.

    Returns:
        A tensor (batch, target, d_model), or with `return_weights` a pair with the weights
        (batch, target, source) in float32, None without attention.

    Source:
        The query and the way of the context: Bahdanau et al., "Neural Machine Translation by
        Jointly Learning to Align and Translate", 2015, section 3.1. The output and input feeding:
        Luong et al., "Effective Approaches to Attention-based Neural Machine Translation", 2015,
        sections 3 and 3.3.
    """

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        cell: Cell = "lstm",
        attention: AttentionKind = "dot_product",
        input_feeding: bool = False,
        dropout: float = 0.0,
        **kwargs,
    ):
        # States stay float32, where autocasting would make them of the compute dtype.
        super().__init__(autocast=False, **kwargs)
        if attention not in AttentionKind.__args__:
            raise ValueError(
                f"`attention` must be one of {', '.join(AttentionKind.__args__)}. "
                f"Received: attention={attention!r}"
            )
        if input_feeding and attention == "none":
            raise ValueError(
                "`input_feeding` feeds what attention gives. Received: "
                f"input_feeding={input_feeding}, attention={attention!r}"
            )
        self.num_layers = num_layers
        self.d_model = d_model
        self.cell = cell
        self.attention = attention
        self.input_feeding = input_feeding
        self.dropout = dropout
        self.layers = [
            RecurrentLayer(d_model, cell, dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(num_layers)
        ]
        self.layer_dropouts = [
            Dropout(dropout, dtype=self.dtype_policy, name=f"dropout_{index}")
            for index in range(num_layers)
        ]
        if attention == "dot_product":
            self.source_attention = DotProductAttention(
                dtype=self.dtype_policy, name="source_attention"
            )
        elif attention == "additive":
            self.source_attention = AdditiveAttention(
                d_model, dtype=self.dtype_policy, name="source_attention"
            )

    def build(self, x_shape, memory_shape=None):
        states_shape = (None, None, self.d_model)
        for index, layer in enumerate(self.layers):
            layer.build(states_shape if index else x_shape)
            self.layer_dropouts[index].build(None)
        if self.attention != "none":
            self.source_attention.build(states_shape, memory_shape)
            # The rows of the lowest layer's kernel that the context, and what is fed, meet.
            joined = memory_shape[-1] + self.input_feeding * self.d_model
            self.context_kernel = self.add_weight(
                name=f"context_{self.cell}_kernel",
                shape=(joined, GATES[self.cell] * self.d_model),
                initializer=glorot_of_gates(joined, self.d_model),
            )
            self.attentional_kernel = self.add_weight(
                name="attentional_kernel",
                shape=(memory_shape[-1] + self.d_model, self.d_model),
                initializer="glorot_uniform",
            )
        self.built = True

    def call(
        self,
        x,
        memory=None,
        attention_mask=None,
        initial_states=None,
        return_weights=False,
        training=False,
    ):
        state = self.begin(tf.shape(x)[0], initial_states)
        if self.attention == "none":
            output, weights = self._layer_by_layer(x, state, training), None
        else:
            memory = self.project_memory(memory)
            output, weights = self._position_by_position(
                x, state, memory, attention_mask, return_weights, training
            )
        output = self.layer_dropouts[-1](output, training=training)
        return (output, weights) if return_weights else output

    def begin(self, rows, initial_states=None) -> DecoderState:
        """The state before the first position.

        Args:
            rows: how many there are of it.
            initial_states: as for `call`.
        """
        if initial_states is None:
            layers = [layer.zero_state(rows) for layer in self.layers]
        else:
            lowest = len(initial_states) - self.num_layers
            layers = [
                tuple(initial_states[max(lowest + index, 0)]) for index in range(self.num_layers)
            ]
        return DecoderState(layers, (tf.zeros([rows, self.d_model]),) if self.input_feeding else ())

    def project_memory(self, memory) -> KeyValues:
        """Keys and values of the source, computed once for all positions."""
        return self.source_attention.project_memory(memory)

    def step(self, x, state: DecoderState, memory: KeyValues | None = None, attention_mask=None):
        """One more position, as `call` would compute it after all so far.

        Args:
            x: float tensor (batch * width, width of embeddings), a position of each of `width`
                hypotheses of a sentence, side by side.
            state: from `begin` or the step before, of as many rows.
            memory: of the sentences, from `project_memory`; None without attention.
            attention_mask: boolean tensor that broadcasts to (batch, width, source).

        Returns:
            The output (batch * width, d_model), the new state, and the attention weights
            (batch * width, source), None without attention.
        """
        weights = self._read_weights()
        inputs = projected(self._cast(x), weights.layers[0])
        return self._advance(inputs, [], state, memory, attention_mask, weights)

    def _layer_by_layer(self, x, state: DecoderState, training):
        for index, (layer, own) in enumerate(zip(self.layers, state.layers, strict=True)):
            if index:
                x = self.layer_dropouts[index - 1](x, training=training)
            x = layer(x, initial_state=own)
        return x

    def _position_by_position(self, x, state, memory, attention_mask, return_weights, training):
        weights = self._read_weights()
        # (B, T, E) -> (T, B, E)
        x = tf.transpose(self._cast(x), [1, 0, 2])
        inputs = [projected(x, weights.layers[0])]
        if training and self.dropout:
            # Drawn for all positions at once.
            ones = tf.ones([*tf.unstack(tf.shape(x)[:2]), self.d_model], self.compute_dtype)
            inputs += [dropout(ones, training=True) for dropout in self.layer_dropouts[:-1]]
        specs = [tf.TensorSpec([None, self.d_model], self.compute_dtype)]
        if return_weights:
            specs.append(tf.TensorSpec([None, None], tf.float32))

        def advance(inputs, state):
            output, state, attended = self._advance(
                inputs[0], inputs[1:], state, memory, attention_mask, weights
            )
            return [output, attended][: len(specs)], state

        results, _ = over_time(advance, inputs, state, specs)
        output, *attended = (tf.transpose(result, [1, 0, 2]) for result in results)
        return output, attended[0] if return_weights else None

    def _advance(self, inputs, kept, state: DecoderState, memory, mask, weights: _Weights):
        """Output, state and attention weights of one position.

        Args:
            inputs: (rows, gates * d_model), what its embeddings add to the lowest layer's gates.
            kept: for each layer but the top one what dropout multiplies its output by, or empty.
        """
        if self.attention != "none":
            context, attended = self._attend(state.layers[-1][0], memory, mask)
            joined = tf.concat([context, *map(self._cast, state.fed)], axis=1)
            inputs += tf.matmul(joined, weights.context)
        layers = []
        for index, (own, before) in enumerate(zip(weights.layers, state.layers, strict=True)):
            if index:
                below = self._cast(layers[-1][0])
                inputs = projected(below * kept[index - 1] if kept else below, own)
            layers.append(STEPS[self.cell](inputs, before, own))
        top = self._cast(layers[-1][0])
        if self.attention == "none":
            return top, DecoderState(layers, ()), None
        output = tf.tanh(tf.matmul(tf.concat([context, top], axis=1), weights.attentional))
        fed = (tf.cast(output, tf.float32),) if self.input_feeding else ()
        return output, DecoderState(layers, fed), attended

    def _attend(self, query, memory: KeyValues, mask):
        """Context (rows, memory_width) and weights (rows, source) of queries (rows, d_model)."""
        rows, batch_size = tf.shape(query)[0], tf.shape(memory.keys)[0]
        width = rows // tf.maximum(batch_size, 1)
        query = tf.reshape(query, [batch_size, width, self.d_model])
        context, weights = self.source_attention.attend(query, memory, mask)
        return (
            tf.reshape(context, [rows, tf.shape(context)[2]]),
            tf.reshape(weights, [rows, tf.shape(weights)[2]]),
        )

    def _read_weights(self) -> _Weights:
        layers = [layer.read_weights() for layer in self.layers]
        if self.attention == "none":
            return _Weights(layers, None, None)
        return _Weights(
            layers, self._cast(self.context_kernel), self._cast(self.attentional_kernel)
        )

    def _cast(self, x):
        return tf.cast(x, self.compute_dtype)
