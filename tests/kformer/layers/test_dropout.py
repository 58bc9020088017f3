import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import Dropout

MANY = tf.ones([200_001])  # an odd number: two elements share one random number


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_is_honoured_and_the_expected_sum_stays(rate):
    output = Dropout(rate)(MANY, training=True).numpy()
    # Five standard deviations of the share, and of the mean that it makes.
    slack = 5 * np.sqrt(rate * (1 - rate) / len(output))
    assert np.mean(output == 0) == pytest.approx(rate, abs=slack)
    assert output.mean() == pytest.approx(1, abs=slack / (1 - rate))
    np.testing.assert_allclose(np.unique(output), [0, 1 / (1 - rate)], rtol=1e-4)


def test_neighbours_are_dropped_independently():
    kept = Dropout(0.5)(MANY, training=True).numpy() > 0
    for distance in (1, 2, 3):
        assert np.mean(kept[distance:] & kept[:-distance]) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4), (0, 4)])
def test_any_number_of_elements_keeps_its_shape(shape):
    output = Dropout(0.5)(tf.ones(shape), training=True)
    assert output.shape == shape
    assert set(np.unique(output)) <= {0, 2}


def test_same_seed_same_masks_and_every_call_another():
    def two_calls(seed=None):
        layer = Dropout(0.5, seed=seed)
        return layer(MANY, training=True).numpy(), layer(MANY, training=True).numpy()

    def globally_seeded(seed):
        keras.utils.set_random_seed(seed)
        return two_calls()

    np.testing.assert_array_equal(globally_seeded(1), globally_seeded(1))
    np.testing.assert_array_equal(two_calls(seed=5), two_calls(seed=5))
    first, second = two_calls(seed=5)
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.01)
    assert np.mean(first == globally_seeded(1)[0]) == pytest.approx(0.5, abs=0.01)


def test_nothing_is_dropped_outside_training_or_at_rate_zero(random):
    x = random(3, 4)
    np.testing.assert_array_equal(Dropout(0.5)(x), x)
    np.testing.assert_array_equal(Dropout(0.5)(x, training=False), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)


def test_gradient_is_the_mask(random):
    x = tf.constant(random(7, 9))
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = Dropout(0.5)(x, training=True)
    np.testing.assert_array_equal(tape.gradient(output, x), np.where(output == 0, 0, 2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_stays_half(dtype):
    output = Dropout(0.5, dtype=dtype)(tf.ones([1001], dtype), training=True)
    assert output.dtype == dtype
    assert set(np.unique(output.numpy().astype("float32"))) == {0, 2}


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5])
def test_other_rates_are_refused(rate):
    with pytest.raises(ValueError, match=f"Received: rate={rate}"):
        Dropout(rate)


def test_rate_just_below_one_is_finite():
    assert np.isfinite(Dropout(1 - 1e-7)(MANY, training=True)).all()
