"""Recurrent layers, the encoder and the decoder made of them."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import RecurrentDecoder, RecurrentEncoder, RecurrentLayer, lengths_mask

CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])
LENGTHS = [5, 2, 0]
REAL = lengths_mask(LENGTHS, 5).numpy()[:, 0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_loops(layer, x, real):
    """Outputs of one sequence at its real positions, and the last state, from the papers."""
    units = layer.units
    state = [np.zeros(units)] * (2 if layer.cell == "lstm" else 1)
    outputs = np.zeros([len(x), units])
    positions = [position for position in range(len(x)) if real[position]]
    for position in reversed(positions) if layer.reverse else positions:
        inputs = x[position] @ layer.kernel.numpy() + layer.bias.numpy()
        recurrent = state[0] @ layer.recurrent_kernel.numpy()
        if layer.cell == "lstm":
            i, f, o, g = np.split(inputs + recurrent, 4)
            c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
            state = [sigmoid(o) * np.tanh(c), c]
        else:
            (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(inputs, 3), np.split(recurrent, 3)
            r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
            n = np.tanh(x_n + r * (h_n + layer.recurrent_bias.numpy()))
            state = [(1 - z) * n + z * state[0]]
        outputs[position] = state[0]
    return outputs, state


@CELLS
@pytest.mark.parametrize("reverse", [False, True])
def test_is_what_a_loop_over_the_real_positions_gives(cell, reverse, random, randomize):
    layer = RecurrentLayer(4, cell, reverse)
    x = random(3, 5, 6)
    layer.build(x.shape)
    randomize(layer)
    # Padding in front and in the middle is padding too.
    for real in (REAL, np.array([[0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [0, 1, 1, 1, 0]], bool)):
        outputs, state = layer(x, real, return_state=True)
        for row in range(3):
            expected, last = by_loops(layer, x[row], real[row])
            np.testing.assert_allclose(outputs[row][real[row]], expected[real[row]], atol=1e-5)
            for mine, other in zip(state, last, strict=True):
                np.testing.assert_allclose(mine[row], other, atol=1e-5)


@CELLS
def test_goes_on_from_the_state_it_is_given(cell, random, randomize):
    layer = RecurrentLayer(4, cell)
    x = random(2, 7, 6)
    whole, last = layer(x, return_state=True)
    first, state = layer(x[:, :3], return_state=True)
    rest, end = layer(x[:, 3:], initial_state=state, return_state=True)
    np.testing.assert_allclose(tf.concat([first, rest], axis=1), whole, atol=1e-6)
    for one, other in zip(end, last, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(last[0], whole[:, -1], atol=1e-6)


@pytest.mark.parametrize("batch_size", [0, 2])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_sequence_of_nothing_leaves_the_state_as_it_was(batch_size, compiled, random):
    layer = RecurrentLayer(4, "lstm")
    call = lambda x, real, state: layer(x, real, state, return_state=True)  # noqa: E731
    before = (tf.constant(random(batch_size, 4)), tf.constant(random(batch_size, 4)))
    if compiled:
        unknown = [None, None]
        floats = tf.TensorSpec([None, 4])
        signature = [tf.TensorSpec([*unknown, 6]), tf.TensorSpec(unknown, tf.bool)]
        call = tf.function(call, input_signature=[*signature, (floats, floats)])
    x, real = tf.zeros([batch_size, 0, 6]), tf.zeros([batch_size, 0], tf.bool)
    outputs, after = call(x, real, before)
    assert outputs.shape == (batch_size, 0, 4)
    for one, other in zip(after, before, strict=True):
        np.testing.assert_array_equal(one, other)


@CELLS
@pytest.mark.parametrize("padding", [0, 3])
def test_the_encoders_states_are_those_of_the_last_real_token(cell, padding, random):
    layer = RecurrentEncoder(2, 6, cell, bidirectional=True)
    x = random(2, 4 + padding, 5)
    real = lengths_mask([4, 2], 4 + padding)[:, 0]
    outputs, states = layer(x, real, return_states=True)
    assert len(states) == 2 and {len(state) for state in states} == {2 if cell == "lstm" else 1}
    for row, length in enumerate([4, 2]):
        np.testing.assert_allclose(states[-1][0][row, :3], outputs[row, length - 1, :3], atol=1e-6)
        np.testing.assert_allclose(states[-1][0][row, 3:], outputs[row, 0, 3:], atol=1e-6)


def test_recurrent_kernels_are_orthogonal_and_forget_gates_open_at_first():
    layer = RecurrentLayer(4, "lstm")
    layer.build((None, None, 6))
    for block in np.split(layer.recurrent_kernel.numpy(), 4, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-5)
    into, forget, out, candidate = np.split(layer.bias.numpy(), 4)
    np.testing.assert_array_equal(forget, 1)
    np.testing.assert_array_equal([into, out, candidate], 0)


def torch_order(cell, kernel):
    """Our gates, input, forget, output, candidate, in the other's order; the GRU's are the same."""
    if cell == "gru":
        return kernel
    i, f, o, g = np.split(kernel, 4, axis=-1)
    return np.concatenate([i, f, g, o], axis=-1)


def copied(torch, network, layer, suffix):
    """Gives one layer and direction of a torch network the weights of ours."""
    bias = torch_order(layer.cell, layer.bias.numpy())
    recurrent_bias = np.zeros_like(bias)
    if layer.cell == "gru":
        recurrent_bias[-layer.units :] = layer.recurrent_bias.numpy()
    for name, value in (
        ("weight_ih", torch_order(layer.cell, layer.kernel.numpy()).T),
        ("weight_hh", torch_order(layer.cell, layer.recurrent_kernel.numpy()).T),
        ("bias_ih", bias),
        ("bias_hh", recurrent_bias),
    ):
        getattr(network, f"{name}_{suffix}").data = torch.tensor(np.ascontiguousarray(value))


@CELLS
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_encoder_equals_torchs_with_the_same_weights(cell, bidirectional, random, randomize):
    torch = pytest.importorskip("torch")
    encoder = RecurrentEncoder(2, 6, cell, bidirectional)
    x, lengths = random(3, 7, 5), [7, 4, 1]
    encoder.build(x.shape)
    randomize(encoder)
    units = 3 if bidirectional else 6
    network = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](
        5, units, num_layers=2, batch_first=True, bidirectional=bidirectional
    )
    for index in range(2):
        copied(torch, network, encoder.forward_layers[index], f"l{index}")
        if bidirectional:
            copied(torch, network, encoder.backward_layers[index], f"l{index}_reverse")
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), lengths, batch_first=True)
    with torch.no_grad():
        expected, last = network(packed)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    real = lengths_mask(lengths, 7)[:, 0]
    outputs, states = encoder(x, real, return_states=True)
    np.testing.assert_allclose(
        tf.boolean_mask(outputs, real), expected.numpy()[real.numpy()], atol=1e-5
    )
    for part, tensor in enumerate(last if cell == "lstm" else [last]):
        directions = 2 if bidirectional else 1
        tensor = tensor.numpy().reshape(2, directions, 3, units)
        for index in range(2):
            joined = np.concatenate(list(tensor[index]), axis=-1)
            np.testing.assert_allclose(states[index][part], joined, atol=1e-5)


@CELLS
def test_the_decoder_without_attention_equals_torchs_with_the_same_weights(cell, random, randomize):
    torch = pytest.importorskip("torch")
    decoder = RecurrentDecoder(2, 6, cell, attention="none")
    x = random(3, 7, 5)
    decoder.build(x.shape)
    randomize(decoder)
    parts = 2 if cell == "lstm" else 1
    states = [tuple(random(3, 6) for _ in range(parts)) for _ in range(2)]
    network = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](5, 6, 2, batch_first=True)
    for index, layer in enumerate(decoder.layers):
        copied(torch, network, layer, f"l{index}")
    begin = [torch.tensor(np.stack([state[part] for state in states])) for part in range(parts)]
    with torch.no_grad():
        expected, _ = network(torch.tensor(x), tuple(begin) if cell == "lstm" else begin[0])
    np.testing.assert_allclose(decoder(x, initial_states=states), expected.numpy(), atol=1e-5)


@CELLS
@pytest.mark.parametrize("input_feeding", [False, True])
def test_the_decoder_with_attention_is_what_a_loop_over_positions_gives(
    cell, input_feeding, random, randomize
):
    """The context of the state before joins the input; it and the new state make the output."""
    decoder = RecurrentDecoder(2, 4, cell, "dot_product", input_feeding)
    x, memory, mask = random(3, 6, 5), random(3, 5, 3), lengths_mask(LENGTHS, 5)
    decoder.build(x.shape, memory.shape)
    randomize(decoder)
    parts = 2 if cell == "lstm" else 1
    states = [tuple(random(3, 4) for _ in range(parts)) for _ in range(2)]
    output, weights = decoder(x, memory, mask, states, return_weights=True)

    # A layer that reads everything joined, as the papers write it.
    lowest = RecurrentLayer(4, cell)
    lowest.build((None, None, 5 + 3 + 4 * input_feeding))
    lowest.kernel.assign(np.concatenate([decoder.layers[0].kernel, decoder.context_kernel]))
    for name in ("recurrent_kernel", "bias", "recurrent_bias"):
        if getattr(lowest, name) is not None:
            getattr(lowest, name).assign(getattr(decoder.layers[0], name))
    fed = np.zeros([3, 4], "float32")
    for position in range(6):
        query = states[1][0][:, np.newaxis]
        context, expected_weights = decoder.source_attention(
            query, memory, mask, return_weights=True
        )
        joined = [x[:, position], context[:, 0], *([fed] if input_feeding else [])]
        below, first = lowest(
            np.concatenate(joined, axis=1)[:, np.newaxis],
            initial_state=states[0],
            return_state=True,
        )
        top, second = decoder.layers[1](below, initial_state=states[1], return_state=True)
        states = [first, second]
        fed = np.tanh(np.concatenate([context, top], axis=2) @ decoder.attentional_kernel)[:, 0]
        np.testing.assert_allclose(output[:, position], fed, atol=1e-5)
        np.testing.assert_allclose(weights[:, position], expected_weights[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("encoder_depth", "decoder_depth", "begins_with"),
    [(2, 2, [0, 1]), (3, 1, [2]), (3, 2, [1, 2]), (1, 2, [0, 0]), (2, 4, [0, 0, 0, 1])],
)
def test_the_top_layer_begins_with_the_state_of_the_top_one(
    encoder_depth, decoder_depth, begins_with
):
    decoder = RecurrentDecoder(decoder_depth, 1, "gru", attention="none")
    states = [(tf.fill([2, 1], float(index)),) for index in range(encoder_depth)]
    begun = decoder.begin(2, states)
    assert [int(output[0, 0]) for (output,) in begun.layers] == begins_with


@pytest.mark.parametrize("attention", ["none", "dot_product"])
def test_dropout_is_drawn_anew_at_each_position_between_layers_and_on_the_output(attention, random):
    decoder = RecurrentDecoder(2, 6, "gru", attention, dropout=0.5)
    x, memory = random(4, 30, 5), random(4, 5, 6)
    memory = None if attention == "none" else memory
    plain = decoder(x, memory)
    np.testing.assert_array_equal(decoder(x, memory), plain)
    dropped = decoder(x, memory, training=True).numpy()
    zeros = dropped == 0
    assert 0.4 < zeros.mean() < 0.6
    assert (zeros != zeros[:, :1]).any(), "not one mask for all positions"
    # What is kept is not the plain output twice: dropout between the layers has changed it.
    assert np.abs(dropped - 2 * plain)[~zeros].max() > 0.05


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="Received: cell='rnn'"):
        RecurrentLayer(3, "rnn")
    with pytest.raises(ValueError, match="Received: units=0"):
        RecurrentLayer(0)
    with pytest.raises(ValueError, match="Received: d_model=7"):
        RecurrentEncoder(1, 7, bidirectional=True)
    with pytest.raises(ValueError, match="Received: attention='luong'"):
        RecurrentDecoder(1, 8, attention="luong")
    with pytest.raises(ValueError, match="Received: input_feeding=True, attention='none'"):
        RecurrentDecoder(1, 8, attention="none", input_feeding=True)
