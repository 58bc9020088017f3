"""A recurrent layer, LSTM or GRU, whose state stands still at padding."""

from typing import NamedTuple

import keras
import tensorflow as tf

from kformer.choices import Cell
from kformer.layers.config import ArgumentsConfig


class CellWeights(NamedTuple):
    """The weights of a cell, read and cast once for all steps; gates lie side by side."""

    kernel: tf.Tensor  # (width, gates * units)
    bias: tf.Tensor  # (gates * units,)
    recurrent_kernel: tf.Tensor  # (units, gates * units)
    recurrent_bias: tf.Tensor | None  # (units,), of the GRU's candidate


def projected(x, weights: CellWeights):
    """What inputs (..., width) add to the gates: (..., gates * units)."""
    shape = tf.shape(x)
    flat = tf.matmul(tf.reshape(x, [-1, weights.kernel.shape[0]]), weights.kernel)
    flat = tf.nn.bias_add(flat, weights.bias)
    return tf.reshape(flat, tf.concat([shape[:-1], tf.shape(flat)[1:]], axis=0))


def lstm_step(inputs, state, weights: CellWeights):
    """The state after one more input.

    Args:
        inputs: float tensor (batch, 4 * units), from `projected`: input, forget and output gate,
            candidate.
        state: output and memory cell, float32 tensors (batch, units).
        weights: of the cell.

    Source:
        Gers et al., "Learning to Forget: Continual Prediction with LSTM", 2000.
    """
    output, cell = state
    gates = _gates(inputs, output, weights)
    units = weights.recurrent_kernel.shape[0]
    opened = tf.sigmoid(gates[:, : 3 * units])
    into, forget, out = tf.split(opened, 3, axis=1)
    cell = forget * cell + into * tf.tanh(gates[:, 3 * units :])
    return out * tf.tanh(cell), cell


def gru_step(inputs, state, weights: CellWeights):
    """The state after one more input.

    The reset gate applies after the recurrent product, which is thus one for all gates.

    Args:
        inputs: float tensor (batch, 3 * units), from `projected`: reset and update gate,
            candidate.
        state: the output alone, one float32 tensor (batch, units).
        weights: of the cell.

    Source:
        Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014.
    """
    (output,) = state
    units = weights.recurrent_kernel.shape[0]
    inputs = tf.cast(inputs, tf.float32)
    recurrent = _recurrent(output, weights)
    opened = tf.sigmoid(inputs[:, : 2 * units] + recurrent[:, : 2 * units])
    reset, update = tf.split(opened, 2, axis=1)
    from_output = recurrent[:, 2 * units :] + tf.cast(weights.recurrent_bias, tf.float32)
    candidate = tf.tanh(inputs[:, 2 * units :] + reset * from_output)
    return (candidate + update * (output - candidate),)


STEPS = {"lstm": lstm_step, "gru": gru_step}
GATES = {"lstm": 4, "gru": 3}
# Tensors of a state, the output first.
_STATES = {"lstm": 2, "gru": 1}


def over_time(step, inputs, state, outputs, reverse=False):
    """Runs a step over all times, in eager mode or as one loop of a graph.

    Args:
        step: function of the inputs at one time, a list, and the state; gives the outputs at that
            time, a list, and the new state.
        inputs: list of tensors (length, batch, ...).
        state: nest of tensors (batch, ...) before the first step.
        outputs: list of `tf.TensorSpec`s of the outputs at one time.
        reverse: whether to go from the last time to the first.

    Returns:
        A list of the outputs (length, batch, ...), each at its own time, and the last state.
    """
    length = tf.shape(inputs[0])[0]
    # At least one: a list of nothing does not know how large its elements would be.
    steps = tf.maximum(length, 1)
    # Slices of a tensor would have gradients as large as all of it, at each step.
    arrays = [
        tf.TensorArray(tensor.dtype, steps, element_shape=tensor.shape[1:]).unstack(
            _lengthened(tensor, steps - length)
        )
        for tensor in inputs
    ]
    results = [tf.TensorArray(spec.dtype, steps, element_shape=spec.shape) for spec in outputs]

    def advance(i, state, results):
        now = steps - 1 - i if reverse else i
        found, state = step([array.read(now) for array in arrays], state)
        return (
            i + 1,
            state,
            [result.write(now, tensor) for result, tensor in zip(results, found, strict=True)],
        )

    shapes = tf.nest.map_structure(lambda tensor: tf.TensorShape([None, *tensor.shape[1:]]), state)
    _, last, results = tf.while_loop(
        lambda i, *_: i < steps,
        advance,
        (0, state, results),
        shape_invariants=(tf.TensorShape([]), shapes, [tf.TensorShape(None)] * len(results)),
        # By which XLA knows how much a gradient has to remember.
        maximum_iterations=steps,
    )
    last = tf.nest.map_structure(lambda new, old: tf.where(length > 0, new, old), last, state)
    return [result.stack()[:length] for result in results], last


def _lengthened(tensor, count):
    """(length + count, ...) of (length, ...), with zeros or False."""
    shape = tf.concat([[count], tf.shape(tensor)[1:]], axis=0)
    return tf.concat([tensor, tf.zeros(shape, tensor.dtype)], axis=0)


@keras.saving.register_keras_serializable("kformer")
class RecurrentLayer(ArgumentsConfig, keras.layers.Layer):
    """An LSTM or GRU over a sequence, exact under padding in both directions.

    Where there is padding the state stands still, so the last state is that of the last real
    position, and read in reverse the first real one is where it begins. Products are made in the
    compute dtype; gates and states are float32.

    Args:
        units: width of the output.
        cell: "lstm" or "gru".
        reverse: whether to read from the end to the start.

    Call arguments:
        x: float tensor (batch, length, width).
        padding_mask: boolean tensor (batch, length), False = padding. None: all is real.
        initial_state: tuple of float32 tensors (batch, units): the output, and for "lstm" the
            memory cell. None: zeros.
        return_state: whether to return the last state too.

    Returns:
        A tensor (batch, length, units), each output at the position of its input, or with
        `return_state` a pair with the last state, a tuple like `initial_state`.

    Source:
        Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; forget gates open at first:
        Jozefowicz et al., "An Empirical Exploration of Recurrent Network Architectures", 2015.
    """

    def __init__(self, units: int, cell: Cell = "lstm", reverse: bool = False, **kwargs):
        # States stay float32, where autocasting would make them of the compute dtype.
        super().__init__(autocast=False, **kwargs)
        if units < 1:
            raise ValueError(f"`units` must be at least 1. Received: units={units}")
        if cell not in Cell.__args__:
            raise ValueError(
                f"`cell` must be one of {', '.join(Cell.__args__)}. Received: cell={cell!r}"
            )
        self.units = units
        self.cell = cell
        self.reverse = reverse

    def build(self, x_shape):
        gates, units = GATES[self.cell], self.units
        # Named after the cell, as an optimizer of matrices must know how many there are.
        self.kernel = self.add_weight(
            name=f"{self.cell}_kernel",
            shape=(x_shape[-1], gates * units),
            initializer=glorot_of_gates(x_shape[-1], units),
        )
        self.recurrent_kernel = self.add_weight(
            name=f"{self.cell}_recurrent_kernel",
            shape=(units, gates * units),
            initializer=_orthogonal_blocks,
        )
        self.bias = self.add_weight(
            name="bias",
            shape=(gates * units,),
            initializer=_open_forget_gates if self.cell == "lstm" else "zeros",
        )
        self.recurrent_bias = None
        if self.cell == "gru":
            self.recurrent_bias = self.add_weight(
                name="recurrent_bias", shape=(units,), initializer="zeros"
            )
        self.built = True

    def call(self, x, padding_mask=None, initial_state=None, return_state=False):
        weights, step = self.read_weights(), STEPS[self.cell]
        x = tf.transpose(tf.cast(x, self.compute_dtype), [1, 0, 2])
        inputs = [projected(x, weights)]
        if padding_mask is not None:
            inputs.append(tf.transpose(padding_mask)[:, :, tf.newaxis])
        state = self.zero_state(tf.shape(x)[1]) if initial_state is None else tuple(initial_state)

        def advance(inputs, state):
            new = step(inputs[0], state, weights)
            if padding_mask is not None:
                new = tuple(tf.where(inputs[1], *both) for both in zip(new, state, strict=True))
            return [tf.cast(new[0], self.compute_dtype)], new

        output = tf.TensorSpec([None, self.units], self.compute_dtype)
        (outputs,), state = over_time(advance, inputs, state, [output], self.reverse)
        outputs = tf.transpose(outputs, [1, 0, 2])
        return (outputs, state) if return_state else outputs

    def zero_state(self, batch_size):
        """The state before anything was read."""
        zeros = tf.zeros([batch_size, self.units])
        return (zeros,) * _STATES[self.cell]

    def read_weights(self) -> CellWeights:
        """The weights in the compute dtype."""
        weights = (self.kernel, self.bias, self.recurrent_kernel, self.recurrent_bias)
        return CellWeights(
            *(None if each is None else tf.cast(each, self.compute_dtype) for each in weights)
        )


def glorot_of_gates(width, units):
    """Glorot's initializer with the fans of each gate's matrix, not of all side by side."""
    limit = (6 / (width + units)) ** 0.5
    return keras.initializers.RandomUniform(-limit, limit)


def _gates(inputs, output, weights: CellWeights):
    return tf.cast(inputs, tf.float32) + _recurrent(output, weights)


def _recurrent(output, weights: CellWeights):
    kernel = weights.recurrent_kernel
    return tf.cast(tf.matmul(tf.cast(output, kernel.dtype), kernel), tf.float32)


def _orthogonal_blocks(shape, dtype=None):
    units, width = shape
    # There is no decomposition in bfloat16.
    blocks = [keras.initializers.Orthogonal()((units, units)) for _ in range(width // units)]
    return tf.cast(tf.concat(blocks, axis=1), dtype or tf.float32)


def _open_forget_gates(shape, dtype=None):
    units = shape[0] // 4
    ones = tf.ones([units], dtype or tf.float32)
    return tf.concat([0 * ones, ones, 0 * ones, 0 * ones], axis=0)
