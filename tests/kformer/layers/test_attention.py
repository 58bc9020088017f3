import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import KeyValues, MultiHeadAttention, causal_mask, scaled_dot_product_attention

DTYPES = ["float32", "float16", "bfloat16"]


@pytest.mark.parametrize(
    "mask_shape", [None, (2, 3, 4, 5), (2, 1, 1, 5), (1, 1, 4, 5), (4, 1), (5,)]
)
def test_attention_is_softmax_of_scaled_scores_over_what_the_mask_allows(
    mask_shape, reference, random
):
    query, key, value = random(2, 3, 4, 6), random(2, 3, 5, 6), random(2, 3, 5, 7)
    mask = None if mask_shape is None else random(*mask_shape) > 0
    full = np.broadcast_to(True if mask is None else mask, (2, 3, 4, 5))
    context, weights = scaled_dot_product_attention(query, key, value, mask)
    for row, head in np.ndindex(2, 3):
        expected_context, expected_weights = reference.attention(
            query[row, head], key[row, head], value[row, head], full[row, head]
        )
        np.testing.assert_allclose(context[row, head], expected_context, atol=1e-5)
        np.testing.assert_allclose(weights[row, head], expected_weights, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax_of_half_precision_inputs_is_float32(dtype):
    # The last of 4001 keys scores 10 and the rest 0. Half precision has few of the weights right.
    query = tf.constant([[1.0]], dtype)
    key = tf.concat([tf.zeros([4000, 1], dtype), tf.constant([[10.0]], dtype)], axis=0)
    context, weights = scaled_dot_product_attention(query, key, key)
    total = np.exp(10.0) + 4000
    assert weights.dtype == tf.float32 and context.dtype == dtype
    np.testing.assert_allclose(weights[0, 0], 1 / total, rtol=1e-5)
    np.testing.assert_allclose(weights[0, -1], np.exp(10.0) / total, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_query_that_may_attend_to_nothing_gets_zeros_and_finite_gradients(dtype, random):
    query, key, value = (tf.cast(random(1, 2, 3), dtype) for _ in range(3))
    mask = tf.constant([[[True, False], [False, False]]])
    with tf.GradientTape() as tape:
        tape.watch([query, key, value])
        context, weights = scaled_dot_product_attention(query, key, value, mask)
    gradients = [g.numpy().astype("float32") for g in tape.gradient(context, [query, key, value])]
    np.testing.assert_array_equal(weights[0, 1], 0)
    np.testing.assert_array_equal(tf.cast(context[0, 1], "float32"), 0)
    np.testing.assert_array_equal(gradients[0][0, 1], 0)
    assert all(np.isfinite(g).all() for g in gradients)
    assert np.abs(gradients[2][0, 0]).min() > 0, "the other query must pass a gradient"


def test_dropout_function_changes_the_context_and_not_the_returned_weights(random):
    query, key, value = random(1, 2, 3), random(1, 2, 3), random(1, 2, 3)
    context, weights = scaled_dot_product_attention(query, key, value)
    dropped, same = scaled_dot_product_attention(query, key, value, dropout=lambda w: 2 * w)
    np.testing.assert_allclose(dropped, 2 * context, rtol=1e-6)
    np.testing.assert_array_equal(same, weights)


@pytest.fixture
def layer(randomize):
    layer = MultiHeadAttention(d_model=8, num_heads=2)
    layer.build((None, None, 8))
    return randomize(layer)


@pytest.fixture
def mask():
    return np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)[:, None, None, :]


def test_self_attention_equals_numpy(layer, mask, reference, random):
    x = random(2, 5, 8)
    output, weights = layer(x, attention_mask=mask, return_weights=True)
    expected, expected_weights = reference.multi_head_attention(layer, x, mask=mask)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
    np.testing.assert_array_equal(layer(x, attention_mask=mask), output)


def test_cross_attention_equals_numpy(layer, mask, reference, random):
    x, memory = random(2, 3, 8), random(2, 5, 8)
    output, weights = layer(x, memory, attention_mask=mask, return_weights=True)
    expected, expected_weights = reference.multi_head_attention(layer, x, memory, mask)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


def test_weights_sum_to_one_over_real_keys_and_are_zero_elsewhere(layer, mask, random):
    _, weights = layer(random(2, 5, 8), attention_mask=mask, return_weights=True)
    real = np.broadcast_to(mask, weights.shape)
    np.testing.assert_array_equal(weights.numpy()[~real], 0)
    np.testing.assert_allclose(tf.reduce_sum(weights, axis=-1), 1, atol=1e-6)
    assert weights.numpy()[real].min() > 0


def test_projecting_memory_once_equals_attention_across(layer, mask, random):
    x, memory = random(2, 3, 8), random(2, 5, 8)
    projected = layer.project_memory(memory)
    assert isinstance(projected, KeyValues) and projected.keys.shape == (2, 2, 5, 4)
    output, weights = layer.attend(x, projected, mask)
    expected, expected_weights = layer(x, memory, attention_mask=mask, return_weights=True)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


def test_steps_equal_causal_attention_at_every_position(layer, random):
    x = random(2, 4, 8)
    expected = layer(x, attention_mask=causal_mask(tf.zeros([1, 4])))
    cache = layer.empty_cache(2, width=1, length=6)
    for time in range(4):
        seen = tf.reshape(tf.range(6) <= time, [1, 1, 1, 6])
        output, cache, _ = layer.step(x[:, time : time + 1], cache, time, seen)
        np.testing.assert_allclose(output[:, 0], expected[:, time], atol=1e-5)


def test_hypotheses_of_one_cache_see_what_they_are_shown(layer, random):
    """Two hypotheses; at the second step both go on from the second one's first position."""
    first, second = random(1, 2, 8), random(1, 2, 8)
    cache = layer.empty_cache(1, width=2, length=2)
    own = np.array([[[[1, 0, 0, 0], [0, 0, 1, 0]]]], bool)
    _, cache, _ = layer.step(first, cache, 0, own)
    shown = np.array([[[[0, 1, 1, 0], [0, 0, 1, 1]]]], bool)
    output, _, _ = layer.step(second, cache, 1, shown)
    for row in range(2):
        history = np.stack([first[0, 1], second[0, row]])[np.newaxis]
        expected = layer(history, attention_mask=causal_mask(tf.zeros([1, 2])))
        np.testing.assert_allclose(output[0, row], expected[0, 1], atol=1e-5)


def test_attention_weights_are_dropped_in_training_only(random):
    layer = MultiHeadAttention(d_model=8, num_heads=2, dropout=0.5)
    x = random(2, 5, 8)
    plain = layer(x).numpy()
    np.testing.assert_array_equal(layer(x, training=False), plain)
    dropped, weights = layer(x, training=True, return_weights=True)
    assert np.abs(dropped - plain).max() > 1e-3
    np.testing.assert_allclose(tf.reduce_sum(weights, -1), 1, atol=1e-6)  # as before dropout


def test_no_bias_leaves_two_weights():
    layer = MultiHeadAttention(d_model=8, num_heads=2, use_bias=False)
    assert not np.any(layer(np.zeros([1, 3, 8], "float32")))
    assert [w.shape for w in layer.weights] == [(8, 24), (8, 8)]


@pytest.mark.parametrize(("d_model", "num_heads"), [(10, 3), (8, 0)])
def test_heads_that_do_not_divide_the_width_are_refused(d_model, num_heads):
    with pytest.raises(ValueError, match=f"Received: d_model={d_model}, num_heads={num_heads}"):
        MultiHeadAttention(d_model, num_heads)


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("argument", ["query", "memory"])
def test_wrong_last_axis_is_refused(argument, built, random):
    layer = MultiHeadAttention(8, 2)
    if built:
        layer.build((None, None, 8))
    widths = {"query": 8, "memory": 8} | {argument: 16}
    with pytest.raises(ValueError, match=f"`{argument}` must be d_model=8.*2, 3, 16"):
        layer(*(random(2, 3, width) for width in widths.values()))


def test_each_square_matrix_starts_with_glorots_spread():
    d_model = 128
    layer = MultiHeadAttention(d_model, num_heads=2)
    layer.build((None, None, d_model))
    limit = np.sqrt(6 / (2 * d_model))
    matrices = [*np.split(layer.qkv_kernel.numpy(), 3, axis=1), layer.output_kernel.numpy()]
    for matrix in matrices:
        assert 0.99 * limit < np.abs(matrix).max() <= limit
        # 16384 uniform numbers: the standard deviation's own error is about 0.35%.
        assert matrix.std() == pytest.approx(limit / np.sqrt(3), rel=0.02)
    assert not np.array_equal(matrices[0], matrices[1])


def test_functional_model_gets_output_and_weights_of_static_width():
    x = keras.Input([None, 8])
    output, weights = MultiHeadAttention(8, 2)(x, return_weights=True)
    assert output.shape == (None, None, 8) and weights.shape == (None, 2, None, None)
