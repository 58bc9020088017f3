import keras
import numpy as np
import tensorflow as tf

from kformer.layers import causal_mask, padding_mask


def test_padding_mask_shows_real_tokens_to_every_head_and_query():
    mask = padding_mask(tf.constant([[5, 6, 0], [7, 0, 0]]))
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, True, False]]], [[[True, False, False]]]])
    np.testing.assert_array_equal(padding_mask(tf.constant([[0, 9]]), pad_id=9)[0, 0, 0], [1, 0])


def test_causal_mask_shows_the_past_and_the_present():
    mask = causal_mask(tf.constant([[7, 0, 8], [0, 0, 0]]))
    assert mask.dtype == tf.bool and mask.shape == (1, 1, 3, 3)
    np.testing.assert_array_equal(mask[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert causal_mask(tf.zeros([2, 0])).shape == (1, 1, 0, 0)


def test_masks_can_be_part_of_a_functional_model():
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, keras.ops.logical_and(padding_mask(ids), causal_mask(ids)))
    masks = model(tf.constant([[5, 0], [0, 7]]))
    np.testing.assert_array_equal(masks[:, 0], [[[1, 0], [1, 0]], [[0, 0], [0, 1]]])
