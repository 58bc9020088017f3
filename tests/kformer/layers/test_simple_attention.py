import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import SimpleAttention, padding_mask

SCORES = pytest.mark.parametrize("score", ["dot_product", "additive"])


@pytest.fixture
def layer(score, randomize):
    layer = SimpleAttention(units=6, score=score)
    layer.build((None, None, 8))
    return randomize(layer)


@pytest.fixture
def mask():
    return np.array([[1, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]], bool)


@SCORES
def test_equals_numpy_and_gives_zeros_where_all_is_masked(score, layer, mask, random):
    x = random(3, 4, 8)
    pooled, weights = layer(x, mask, return_weights=True)
    query = layer.query.numpy()
    for row in range(3):
        expected, expected_weights = np.zeros(6), np.zeros(4)
        seen = np.flatnonzero(mask[row])
        keys, values = x[row] @ layer.key_kernel.numpy(), x[row] @ layer.value_kernel.numpy()
        values = values + layer.value_bias.numpy()
        if score == "additive":
            scores = [layer.score_vector.numpy() @ np.tanh(query + keys[j]) for j in seen]
        else:
            scores = [query @ keys[j] / np.sqrt(6) for j in seen]
        if len(seen):
            expected_weights[seen] = np.exp(scores) / np.exp(scores).sum()
            expected = expected_weights @ values
        np.testing.assert_allclose(pooled[row], expected, atol=1e-5)
        np.testing.assert_allclose(weights[row], expected_weights, atol=1e-5)
    np.testing.assert_array_equal(pooled[2], 0)
    np.testing.assert_array_equal(layer(x, mask), pooled)


@SCORES
def test_padding_changes_nothing(layer, random):
    ids = np.array([[4, 5, 6], [7, 0, 0]])
    x = random(2, 3, 8)
    together, weights = layer(x, padding_mask(ids), return_weights=True)
    np.testing.assert_allclose(layer(x[1:, :1])[0], together[1], atol=1e-6)
    np.testing.assert_array_equal(weights[1], [1, 0, 0])


@SCORES
def test_gradients_are_finite_where_all_is_masked(layer, mask, random):
    x = tf.constant(random(3, 4, 8))
    with tf.GradientTape() as tape:
        tape.watch(x)
        pooled = layer(x, mask)
    (of_x, *of_weights) = tape.gradient(pooled, [x, *layer.trainable_weights])
    assert all(np.isfinite(gradient).all() for gradient in [of_x, *of_weights])
    np.testing.assert_array_equal(of_x[2], 0)
    assert all(np.abs(gradient).max() > 0 for gradient in of_weights)


@SCORES
def test_comes_back_from_a_file(score, layer, random, tmp_path):
    inputs = keras.Input([None, 8]), keras.Input([None], dtype="bool")
    model = keras.Model(inputs, layer(*inputs))
    model.save(tmp_path / "model.keras")
    given = random(2, 4, 8), np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool)
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.output.shape == (None, 6)
    np.testing.assert_allclose(again(given), layer(*given), atol=1e-6)


def test_weights_are_dropped_in_training_only(random):
    layer = SimpleAttention(6, dropout=0.5)
    x = random(2, 4, 8)
    plain = layer(x).numpy()
    assert np.abs(layer(x, training=True) - plain).max() > 1e-3
    np.testing.assert_array_equal(layer(x), plain)


@SCORES
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_gives_halves_and_float32_weights(dtype, score, layer, random):
    half = SimpleAttention(6, score=score, dtype=dtype)
    half.build((None, None, 8))
    half.set_weights(layer.get_weights())
    x = random(2, 4, 8)
    pooled, weights = half(x, return_weights=True)
    assert pooled.dtype == dtype.removeprefix("mixed_") and weights.dtype == tf.float32
    np.testing.assert_allclose(tf.cast(pooled, "float32"), layer(x), atol=0.1)


def test_mask_of_another_length_is_an_error(random):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        SimpleAttention(6)(random(2, 4, 8), np.ones([2, 3], bool))


def test_a_score_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="dot_product, additive. Received: score='cosine'"):
        SimpleAttention(6, score="cosine")
