import numpy as np
import pytest

from kformer.layers import Residual


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_norm_stands_before_the_sublayer_or_after_the_sum(norm, reference, random, randomize):
    layer = Residual(norm)
    layer.build((None, None, 6))
    randomize(layer)
    x = 3 * random(2, 4, 6) + 1
    output = layer(x, np.tanh(layer.prepare(x)))
    np.testing.assert_allclose(output, reference.residual(layer, x, np.tanh), atol=1e-5)


def test_the_sublayers_output_is_dropped_and_the_input_is_not(random):
    layer = Residual("pre", dropout=0.5)
    x, output = random(2, 40, 6), random(2, 40, 6)
    dropped = layer(x, output, training=True).numpy() - x
    kept = np.abs(dropped) > 1e-5
    assert 0.3 < kept.mean() < 0.7
    np.testing.assert_allclose(dropped[kept], 2 * output[kept], atol=1e-5)


def test_other_norms_are_refused():
    with pytest.raises(ValueError, match="Received: norm='Pre'"):
        Residual("Pre")
