import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, causal_mask

SIZES = dict(d_model=8, num_heads=2, d_ff=12)
SHAPE = (None, None, 8)
NORMS = pytest.mark.parametrize("norm", ["pre", "post"])


@pytest.fixture
def build(randomize):
    def build(layer):
        layer.build(SHAPE) if "Encoder" in type(layer).__name__ else layer.build(SHAPE, SHAPE)
        return randomize(layer)

    return build


@pytest.fixture
def source_mask():
    return np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)[:, None, None]


@NORMS
def test_encoder_layer_equals_numpy(norm, build, reference, random, source_mask):
    layer, x = build(EncoderLayer(**SIZES, norm=norm)), random(2, 4, 8)
    output, weights = layer(x, source_mask, return_weights=True)
    np.testing.assert_allclose(output, reference.encoder_layer(layer, x, source_mask), atol=1e-4)
    assert weights.shape == (2, 2, 4, 4)


@NORMS
def test_encoder_is_its_layers_and_in_pre_norm_a_last_norm(
    norm, build, reference, random, source_mask
):
    encoder, x = build(Encoder(2, **SIZES, norm=norm)), random(2, 4, 8)
    output, weights = encoder(x, source_mask, return_weights=True)
    expected = x
    for layer in encoder.layers:
        expected = reference.encoder_layer(layer, expected, source_mask)
    if norm == "pre":
        expected = reference.layer_norm(encoder.final_norm, expected)
    np.testing.assert_allclose(output, expected, atol=1e-4)
    assert [w.shape for w in weights] == [(2, 2, 4, 4)] * 2


@NORMS
def test_decoder_layer_equals_numpy(norm, build, reference, random, source_mask):
    layer, x, memory = build(DecoderLayer(**SIZES, norm=norm)), random(2, 3, 8), random(2, 4, 8)
    causal = np.tril(np.ones([1, 1, 3, 3], bool))
    output, weights = layer(x, memory, causal, source_mask, return_weights=True)
    expected = reference.decoder_layer(layer, x, memory, causal, source_mask)
    np.testing.assert_allclose(output, expected, atol=1e-4)
    assert weights.self_attention.shape == (2, 2, 3, 3)
    assert weights.cross_attention.shape == (2, 2, 3, 4)


@NORMS
def test_decoder_is_its_layers_and_in_pre_norm_a_last_norm(
    norm, build, reference, random, source_mask
):
    decoder, x, memory = build(Decoder(2, **SIZES, norm=norm)), random(2, 3, 8), random(2, 4, 8)
    causal = np.tril(np.ones([1, 1, 3, 3], bool))
    expected = x
    for layer in decoder.layers:
        expected = reference.decoder_layer(layer, expected, memory, causal, source_mask)
    if norm == "pre":
        expected = reference.layer_norm(decoder.final_norm, expected)
    np.testing.assert_allclose(decoder(x, memory, causal, source_mask), expected, atol=1e-4)


@NORMS
def test_decoder_steps_equal_the_whole_with_its_cross_attention(norm, build, random, source_mask):
    decoder, x, memory = build(Decoder(2, **SIZES, norm=norm)), random(2, 3, 8), random(2, 4, 8)
    expected, weights = decoder(
        x, memory, causal_mask(tf.zeros([1, 3])), source_mask, return_weights=True
    )
    caches, memories = decoder.empty_caches(2, 1, 3), decoder.project_memory(memory)
    for time in range(3):
        seen = tf.reshape(tf.range(3) <= time, [1, 1, 1, 3])
        output, caches, step_weights = decoder.step(
            x[:, time : time + 1], caches, time, seen, memories, source_mask
        )
        np.testing.assert_allclose(output[:, 0], expected[:, time], atol=1e-5)
        for of_step, of_all in zip(step_weights, weights, strict=True):
            np.testing.assert_allclose(
                of_step[:, :, 0], of_all.cross_attention[:, :, time], atol=1e-5
            )


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "activation_dropout"])
@pytest.mark.parametrize("stack", [Encoder, Decoder])
def test_each_dropout_acts_in_training_only(stack, kind, random):
    layer = stack(1, **SIZES, **{kind: 0.5})
    inputs = [random(2, 4, 8) for _ in range(1 if stack is Encoder else 2)]
    plain = layer(*inputs).numpy()
    assert np.abs(layer(*inputs, training=True) - plain).max() > 1e-3
    np.testing.assert_array_equal(layer(*inputs), plain)


def test_memory_of_another_width_is_refused(random):
    with pytest.raises(ValueError, match=r"`memory` must be d_model=8.*\(2, 4, 6\)"):
        DecoderLayer(**SIZES)(random(2, 3, 8), random(2, 4, 6))
