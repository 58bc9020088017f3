import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import MultiHeadAttention, causal_mask


@pytest.fixture
def layer(randomize):
    layer = MultiHeadAttention(d_model=8, num_heads=2, score="additive")
    layer.build((None, None, 8))
    return randomize(layer)


@pytest.fixture
def mask():
    return np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)[:, None, None, :]


def in_numpy(layer, x, memory, mask):
    """v . tanh(q + k), one number after another: (output, weights)."""
    to_q, to_k, to_v = np.split(layer.qkv_kernel.numpy(), 3, axis=1)
    bias_q, bias_k, bias_v = np.split(layer.qkv_bias.numpy(), 3)
    vectors = layer.score_vector.numpy().reshape(2, 4)
    context = np.zeros(x.shape)
    weights = np.zeros((len(x), 2, x.shape[1], memory.shape[1]))
    for row, head in np.ndindex(len(x), 2):
        own = slice(4 * head, 4 * head + 4)
        q, k, v = x[row] @ to_q + bias_q, memory[row] @ to_k + bias_k, memory[row] @ to_v + bias_v
        seen = np.flatnonzero(mask[row, 0, 0])
        for i in range(x.shape[1]):
            scores = [vectors[head] @ np.tanh(q[i, own] + k[j, own]) for j in seen]
            if len(seen):
                weights[row, head, i, seen] = np.exp(scores) / np.exp(scores).sum()
        context[row, :, own] = weights[row, head] @ v[:, own]
    return context @ layer.output_kernel.numpy() + layer.output_bias.numpy(), weights


@pytest.mark.parametrize("across", [False, True])
def test_scores_are_a_heads_vector_times_the_tanh_of_query_and_key(across, layer, mask, random):
    x = random(2, 5, 8)
    memory = random(2, 5, 8) if across else None
    output, weights = layer(x, memory, attention_mask=mask, return_weights=True)
    expected, expected_weights = in_numpy(layer, x, x if memory is None else memory, mask)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
    np.testing.assert_array_equal(weights[1], 0)


def test_steps_equal_causal_attention_at_every_position(layer, random):
    x = random(2, 4, 8)
    expected = layer(x, attention_mask=causal_mask(tf.zeros([1, 4])))
    cache = layer.empty_cache(2, width=1, length=6)
    for time in range(4):
        seen = tf.reshape(tf.range(6) <= time, [1, 1, 1, 6])
        output, cache, _ = layer.step(x[:, time : time + 1], cache, time, seen)
        np.testing.assert_allclose(output[:, 0], expected[:, time], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_gradients_are_finite_where_all_is_masked(dtype, mask, random):
    layer = MultiHeadAttention(8, 2, score="additive", dtype=dtype)
    x = tf.constant(random(2, 5, 8))
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, attention_mask=mask)
    (of_x, *of_weights) = tape.gradient(output, [x, *layer.trainable_weights])
    assert all(np.isfinite(gradient).all() for gradient in [of_x, *of_weights])
    np.testing.assert_array_equal(of_x[1], 0)
    assert np.abs(of_weights[-1]).min() > 0, "the other row must teach the score's vectors"


@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_in_a_graph_are_those_of_the_formula(jit_compile, layer, random):
    x = tf.constant(random(2, 5, 8))

    @tf.function(jit_compile=jit_compile)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, layer.trainable_weights)

    found = dict(zip((w.name for w in layer.weights), gradients(), strict=True))
    for name in ("score_vector", "qkv_kernel"):
        weight, step = getattr(layer, name), 1e-2
        for index in [(0,) * 4, (1, 0, 0, 2)] if name == "score_vector" else [(0, 0), (3, 9)]:
            numbers, losses = weight.numpy(), []
            for sign in (1, -1):
                moved = numbers.copy()
                moved[index] += sign * step
                weight.assign(moved)
                losses.append(float(tf.reduce_sum(layer(x) ** 2)))
            weight.assign(numbers)
            expected = (losses[0] - losses[1]) / (2 * step)
            assert found[name][index].numpy() == pytest.approx(expected, rel=0.02, abs=0.01)


def test_weights_are_dropped_in_training_only(random):
    layer = MultiHeadAttention(8, 2, dropout=0.5, score="additive")
    x = random(2, 5, 8)
    plain = layer(x).numpy()
    assert np.abs(layer(x, training=True) - plain).max() > 1e-3
    np.testing.assert_array_equal(layer(x), plain)


def test_vectors_of_the_score_start_with_glorots_spread():
    layer = MultiHeadAttention(512, 2, score="additive")
    layer.build((None, None, 512))
    vector, limit = layer.score_vector.numpy(), np.sqrt(6 / 257)
    assert vector.shape == (2, 1, 1, 256) and 0.97 * limit < np.abs(vector).max() <= limit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(score="none"), "dot_product, additive. Received: score='none'"),
        (dict(score="additive", rotary=True), "dot product. Received: score='additive'"),
    ],
)
def test_scores_that_do_not_exist_or_cannot_be_rotary_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(8, 2, **arguments)
