import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import PositionalEmbedding, sinusoidal_positions

# float32 angles carry a relative error of 1e-7: 5e-4 of a radian at position 5000.
POSITIONS = {0: 1e-6, 1: 1e-6, 7: 1e-5, 300: 1e-4, 5000: 1e-3}


@pytest.fixture
def expected_signal(reference):
    def expected_signal(positions, d_model, halves):
        columns = range(d_model)
        return np.array(
            [[reference.sinusoid(p, c, d_model, halves) for c in columns] for p in positions]
        )

    return expected_signal


@pytest.mark.parametrize("halves", [False, True])
def test_sinusoids_follow_the_papers_formula(halves, expected_signal):
    signal = sinusoidal_positions(tf.constant(list(POSITIONS)), 12, halves)
    assert signal.dtype == tf.float32
    for row, expected, tolerance in zip(
        signal, expected_signal(POSITIONS, 12, halves), POSITIONS.values(), strict=True
    ):
        np.testing.assert_allclose(row, expected, atol=tolerance)


def test_sinusoids_keep_the_shape_of_positions():
    positions = np.array([[0, 1, 2], [5, 6, 7]])
    signal = sinusoidal_positions(tf.constant(positions), 4)
    for index in np.ndindex(2, 3):
        expected = sinusoidal_positions(tf.constant([positions[index]]), 4)[0]
        np.testing.assert_allclose(signal[index], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal_halves"])
@pytest.mark.parametrize("start", [300, 5000])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("mixed_bfloat16", 2**-8), ("mixed_float16", 2**-10)]
)
def test_half_precision_rounds_the_signal_and_not_the_position(
    kind, start, dtype, tolerance, expected_signal
):
    layer = PositionalEmbedding(5, 12, kind, dtype=dtype)
    layer.build()
    layer.embedding.assign(np.zeros([5, 12]))
    output = layer(np.ones([1, 3], "int32"), start=start)
    assert output.dtype == dtype.removeprefix("mixed_")
    expected = expected_signal(range(start, start + 3), 12, kind.endswith("halves"))
    np.testing.assert_allclose(tf.cast(output, "float32")[0], expected, atol=tolerance)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "none"])
def test_embedding_is_scaled_and_its_position_added(kind, scale, reference, randomize):
    layer = PositionalEmbedding(7, 4, kind, max_length=9, scale=scale)
    layer.build()
    randomize(layer)
    table = layer.embedding.numpy() * (2 if scale else 1)  # sqrt(4) = 2
    ids, starts = np.array([[3, 6, 0], [1, 1, 2]]), [4, 0]
    output = layer(ids, start=tf.constant(starts))
    for row, column in np.ndindex(2, 3):
        position = starts[row] + column
        expected = table[ids[row, column]]
        if kind == "sinusoidal":
            expected = expected + [reference.sinusoid(position, c, 4, False) for c in range(4)]
        elif kind == "learned":
            expected = expected + layer.position_table.numpy()[position]
        np.testing.assert_allclose(output[row, column], expected, atol=1e-5)
    same_start = layer(ids, start=4)
    np.testing.assert_allclose(same_start[0], output[0], atol=1e-6)
    np.testing.assert_allclose(layer(ids)[1], output[1], atol=1e-6)


@pytest.mark.parametrize("scale", [False, True])
def test_a_table_of_another_width_is_led_to_the_models(scale, random, randomize):
    layer = PositionalEmbedding(7, 4, "none", scale=scale, embedding_dim=3)
    layer.build()
    randomize(layer)
    assert [w.shape for w in layer.weights] == [(7, 3), (3, 4)]
    rows = layer.embedding.numpy() @ layer.projection.numpy() * (2 if scale else 1)
    ids = np.array([[3, 6, 0]])
    np.testing.assert_allclose(layer(ids)[0], rows[ids[0]], atol=1e-5)


def test_a_table_of_the_models_width_is_led_nowhere():
    layer = PositionalEmbedding(7, 4, embedding_dim=4)
    layer.build()
    assert [w.shape for w in layer.weights] == [(7, 4)]


@pytest.mark.parametrize("start", [1, tf.constant([0, 1])], ids=["scalar", "a row"])
def test_positions_past_the_learned_table_are_an_error(start):
    layer = PositionalEmbedding(7, 4, "learned", max_length=5)
    layer(np.ones([2, 4], "int32"), start=start)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="5.*max_length"):
        layer(np.ones([2, 5], "int32"), start=start)


def test_positions_past_the_learned_table_are_an_error_in_a_graph_too():
    layer = PositionalEmbedding(7, 4, "learned", max_length=5)
    layer.build()
    embed = tf.function(layer, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    assert embed(tf.ones([2, 5], tf.int32)).shape == (2, 5, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_length"):
        embed(tf.ones([2, 6], tf.int32))


@pytest.mark.parametrize("scale", [True, False])
def test_learned_positions_start_as_wide_beside_the_embeddings_as_sinusoids(scale):
    d_model = 64
    learned = PositionalEmbedding(5, d_model, "learned", max_length=500, scale=scale)
    learned.build()
    sinusoids = np.std(sinusoidal_positions(np.arange(500)[np.newaxis], d_model))
    beside = np.std(learned.embedding) * (d_model**0.5 if scale else 1)
    # Scaled embeddings have a spread of one, to which sinusoids are added.
    assert np.std(learned.position_table) / beside == pytest.approx(sinusoids, rel=0.1)


@pytest.mark.parametrize("embedding_dim", [None, 200])
def test_embedding_starts_with_a_variance_of_one_after_scaling(embedding_dim):
    layer = PositionalEmbedding(500, 64, "none", embedding_dim=embedding_dim)
    assert layer(np.arange(500)[None]).numpy().std() == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(positions="sine"), "positions='sine'"),
        (dict(positions="learned"), "max_length=None"),
        (dict(d_model=5), "d_model=5"),
    ],
)
def test_arguments_that_make_no_embedding_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"Received: {message}"):
        PositionalEmbedding(**{"vocab_size": 7, "d_model": 4, **arguments})
