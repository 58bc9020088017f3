import numpy as np
import pytest

from kformer.layers import PositionwiseFeedForward


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_feed_forward_equals_numpy(activation, reference, random, randomize):
    layer = PositionwiseFeedForward(4, 6, activation)
    layer.build((None, None, 4))
    randomize(layer)
    x = random(2, 3, 4)
    np.testing.assert_allclose(layer(x), reference.feed_forward(layer, x), atol=1e-5)


def test_activations_are_dropped_between_the_two_products_in_training(random):
    layer = PositionwiseFeedForward(4, 2000, dropout=0.5)
    x = random(1, 3, 4)
    plain = layer(x)
    # Two thousand terms stand behind each output, and half of them are missing.
    difference = (layer(x, training=True) - plain).numpy()
    assert np.abs(difference).max() > 1e-3
    assert np.count_nonzero(layer(x, training=True)) == plain.numpy().size


@pytest.mark.parametrize("built", [False, True])
def test_wrong_last_axis_is_refused(built, random):
    layer = PositionwiseFeedForward(4, 6)
    if built:
        layer.build((None, None, 4))
    with pytest.raises(ValueError, match="4.*2, 3, 8"):
        layer(random(2, 3, 8))
