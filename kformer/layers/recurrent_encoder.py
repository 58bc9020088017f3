"""A stack of recurrent layers over the source, in one direction or both."""

import keras
import tensorflow as tf

from kformer.choices import Cell
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout
from kformer.layers.recurrent import RecurrentLayer


@keras.saving.register_keras_serializable("kformer")
class RecurrentEncoder(ArgumentsConfig, keras.layers.Layer):
    """`num_layers` LSTMs or GRUs, each over the outputs of the one below.

    Args:
        num_layers: depth of the stack.
        d_model: width of the outputs.
        cell: "lstm" or "gru".
        bidirectional: whether each layer reads in both directions, each of them `d_model` / 2
            wide; their outputs and states are joined.
        dropout: share of each layer's output to drop in training.

    Call arguments:
        x: embedded source, float tensor (batch, length, width).
        padding_mask: boolean tensor (batch, length), False = padding. None: all is real.
        return_states: whether to return the last states too.
        training: whether dropout is on.

    Returns:
        A tensor (batch, length, d_model), or with `return_states` a pair with a list of each
        layer's last state: float32 tensors (batch, d_model), one for "gru", two for "lstm".

    Source:
        Sutskever et al., "Sequence to Sequence Learning with Neural Networks", 2014; both
        directions: Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and
        Translate", 2015, section 3.2.
    """

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        cell: Cell = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        **kwargs,
    ):
        # States stay float32, where autocasting would make them of the compute dtype.
        super().__init__(autocast=False, **kwargs)
        if bidirectional and d_model % 2:
            raise ValueError(f"Two directions need an even `d_model`. Received: d_model={d_model}")
        self.num_layers = num_layers
        self.d_model = d_model
        self.cell = cell
        self.bidirectional = bidirectional
        self.dropout = dropout

        def layer(index, direction):
            return RecurrentLayer(
                d_model // 2 if bidirectional else d_model,
                cell,
                reverse=direction == "backward",
                dtype=self.dtype_policy,
                name=f"{direction}_{index}",
            )

        self.forward_layers = [layer(index, "forward") for index in range(num_layers)]
        self.backward_layers = (
            [layer(index, "backward") for index in range(num_layers)] if bidirectional else []
        )
        self.layer_dropouts = [
            Dropout(dropout, dtype=self.dtype_policy, name=f"dropout_{index}")
            for index in range(num_layers)
        ]

    def build(self, x_shape):
        for index, dropout in enumerate(self.layer_dropouts):
            for layer in self._directions(index):
                layer.build(x_shape if index == 0 else (*x_shape[:-1], self.d_model))
            dropout.build(None)
        self.built = True

    def call(self, x, padding_mask=None, return_states=False, training=False):
        states = []
        for index, dropout in enumerate(self.layer_dropouts):
            outputs, of_directions = zip(
                *(layer(x, padding_mask, return_state=True) for layer in self._directions(index)),
                strict=True,
            )
            x = dropout(tf.concat(outputs, axis=-1), training=training)
            states.append(
                tuple(tf.concat(parts, axis=-1) for parts in zip(*of_directions, strict=True))
            )
        return (x, states) if return_states else x

    def _directions(self, index):
        return [self.forward_layers[index], *self.backward_layers[index : index + 1]]
