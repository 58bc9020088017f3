import numpy as np
import pytest
import tensorflow as tf

from kformer.layers.output import OutputProjection


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_products_with_each_row_of_the_table(tied, use_bias, random, randomize):
    layer = OutputProjection(5, 4, tied, use_bias)
    layer.build((None, None, 4))
    randomize(layer)
    x = random(2, 3, 4)
    table = random(5, 4) if tied else layer.kernel.numpy()
    bias = layer.bias.numpy() if use_bias else 0
    assert len(layer.weights) == (not tied) + use_bias
    np.testing.assert_allclose(layer(x, table if tied else None), x @ table.T + bias, atol=1e-5)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_logits_are_summed_and_returned_in_float32(dtype):
    # 1 + 2^-12 is 1 in either half precision.
    layer = OutputProjection(1, 2, tied=True, dtype=dtype)
    logits = layer(tf.constant([[[1.0, 2**-12]]]), tf.ones([1, 2]))
    assert logits.dtype == tf.float32
    assert logits.numpy().item() == 1 + 2**-12


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("mixed_float16", 1e-2), ("mixed_bfloat16", 6e-2)]
)
def test_gradients_equal_those_of_a_plain_product(dtype, tolerance, random):
    layer = OutputProjection(5, 4, tied=True, use_bias=True, dtype=dtype)
    x, table, upstream = tf.constant(random(2, 3, 4)), tf.constant(random(5, 4)), random(2, 3, 5)
    with tf.GradientTape() as tape:
        tape.watch([x, table])
        loss = tf.reduce_sum(layer(x, table) * upstream)
    d_x, d_table, d_bias = tape.gradient(loss, [x, table, layer.bias.value])
    assert d_table.dtype == tf.float32
    np.testing.assert_allclose(d_x, upstream @ table.numpy(), atol=tolerance)
    np.testing.assert_allclose(
        d_table, np.einsum("btv,btd->vd", upstream, x), atol=tolerance, rtol=tolerance
    )
    np.testing.assert_allclose(d_bias, upstream.sum((0, 1)), atol=1e-5)
