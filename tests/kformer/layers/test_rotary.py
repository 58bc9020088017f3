import cmath

import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import MultiHeadAttention, causal_mask
from kformer.layers.rotary import rotate


def turned(vector, position):
    """Components i and i + half are one complex number, which is turned."""
    half = len(vector) // 2
    result = np.zeros(len(vector))
    for i in range(half):
        angle = position * 10000 ** (-2 * i / len(vector))
        number = complex(vector[i], vector[i + half]) * cmath.exp(1j * angle)
        result[i], result[i + half] = number.real, number.imag
    return result


def test_each_plane_turns_by_its_angle(random):
    x, positions = random(2, 3, 4, 6), np.array([[0, 1, 2, 40], [7, 300, 3, 3]])
    rotated = rotate(x, positions).numpy()
    for row, head, column in np.ndindex(2, 3, 4):
        expected = turned(x[row, head, column], positions[row, column])
        np.testing.assert_allclose(rotated[row, head, column], expected, atol=2e-4)


def test_scores_depend_on_the_distance_only(random):
    query, key = random(1, 2, 5, 8), random(1, 2, 5, 8)
    positions = np.array([[3, 0, 9, 1, 1]])

    def scores(start):
        at = positions + start
        return tf.matmul(rotate(query, at), rotate(key, at), transpose_b=True)

    np.testing.assert_allclose(scores(500), scores(0), atol=1e-3)
    unrotated = tf.matmul(query, key, transpose_b=True)
    same = positions[0][:, np.newaxis] == positions[0]
    np.testing.assert_allclose(
        scores(0).numpy()[..., same], unrotated.numpy()[..., same], atol=1e-5
    )
    assert np.abs(scores(0) - unrotated)[..., ~same].min() > 1e-4


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2**-7), ("float16", 2**-9)])
def test_half_precision_rounds_the_vector_and_not_the_position(dtype, tolerance):
    x = tf.ones([1, 1, 1, 4], dtype)
    rotated = rotate(x, [[2049]])
    assert rotated.dtype == dtype
    np.testing.assert_allclose(
        tf.cast(rotated, "float32")[0, 0, 0], turned([1, 1, 1, 1], 2049), atol=tolerance
    )


@pytest.fixture
def layer(randomize):
    layer = MultiHeadAttention(d_model=8, num_heads=2, rotary=True)
    layer.build((None, None, 8))
    return randomize(layer)


@pytest.fixture
def expected(reference):
    """Output and weights in numpy: rotation between the projections and attention."""

    def expected(layer, x, positions, mask):
        columns = np.split(x @ layer.qkv_kernel.numpy() + layer.qkv_bias.numpy(), 3, axis=-1)
        context, weights = np.zeros(x.shape), np.zeros((len(x), 2, x.shape[1], x.shape[1]))
        for row, head in np.ndindex(len(x), 2):
            own = slice(head * 4, head * 4 + 4)
            q, k, v = (column[row, :, own] for column in columns)
            q = np.array([turned(a, p) for a, p in zip(q, positions[row], strict=True)])
            k = np.array([turned(a, p) for a, p in zip(k, positions[row], strict=True)])
            context[row, :, own], weights[row, head] = reference.attention(q, k, v, mask[row, 0])
        return context @ layer.output_kernel.numpy() + layer.output_bias.numpy(), weights

    return expected


@pytest.mark.parametrize("given", [None, [[0, 1, 2, 3], [9, 2, 5, 6]], [[4], [0]]])
def test_self_attention_equals_numpy(given, layer, expected, random):
    x, mask = random(2, 4, 8), np.ones([2, 1, 4, 4], bool)
    mask[1, :, :, 2] = False
    positions = np.arange(4) if given is None else np.array(given)
    output, weights = layer(x, attention_mask=mask, positions=given, return_weights=True)
    at = np.broadcast_to(positions, (2, 4))
    expected_output, expected_weights = expected(layer, x, at, mask)
    np.testing.assert_allclose(output, expected_output, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


def test_attention_to_a_memory_is_not_rotated(layer, random):
    plain = MultiHeadAttention(d_model=8, num_heads=2)
    plain.build((None, None, 8))
    plain.set_weights(layer.get_weights())
    x, memory = random(2, 3, 8), random(2, 5, 8)
    np.testing.assert_array_equal(layer(x, memory), plain(x, memory))
    np.testing.assert_array_equal(
        layer.attend(x, layer.project_memory(memory))[0], plain(x, memory)
    )


@pytest.mark.parametrize("starts", [None, [[0], [3]]], ids=["from 0", "of each row"])
def test_steps_equal_causal_attention_at_every_position(starts, layer, random):
    x = random(2, 4, 8)
    positions = None if starts is None else np.array(starts) + np.arange(4)
    whole = layer(x, attention_mask=causal_mask(tf.zeros([1, 4])), positions=positions)
    cache = layer.empty_cache(2, width=1, length=6)
    for time in range(4):
        seen = tf.reshape(tf.range(6) <= time, [1, 1, 1, 6])
        at = None if starts is None else np.array(starts) + time
        output, cache, _ = layer.step(x[:, time : time + 1], cache, time, seen, at)
        np.testing.assert_allclose(output[:, 0], whole[:, time], atol=1e-5)


def test_heads_of_odd_depth_are_refused():
    with pytest.raises(ValueError, match="Received: d_model=6, num_heads=2"):
        MultiHeadAttention(6, 2, rotary=True)
