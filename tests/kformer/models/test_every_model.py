"""What holds for every kind of model, whatever its options."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy
from tests.kformer.models.conftest import make_recurrent, make_transformer

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
IDS = tf.TensorSpec([None, None], tf.int64)


def test_a_sentence_alone_equals_the_sentence_in_a_padded_batch(build_any, batch, padded):
    model = build_any()
    run = tf.function(lambda source, target: model((source, target)), input_signature=[IDS, IDS])
    (source, target), _ = batch
    together = run(padded(source, 3), padded(target, 4))
    for row in range(len(source)):
        width, length = np.count_nonzero(source[row]), np.count_nonzero(target[row])
        alone = run(source[row : row + 1, :width], target[row : row + 1, :length])
        np.testing.assert_allclose(together[row, :length], alone[0], atol=1e-5)


def test_logits_read_no_target_token_after_their_own(build_any, batch):
    model = build_any()
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6, 7]] * 3)
    plain = model((source, target)).numpy()
    for changed in range(5):
        other = target.copy()
        other[:, changed] = 10
        differs = np.abs(model((source, other)) - plain).max(axis=(0, 2))
        np.testing.assert_array_equal(differs[:changed], 0)
        assert differs[changed:].min() > 1e-5, "the token itself and all after it must see it"


def test_every_source_token_reaches_every_logit(build_any, batch):
    model = build_any()
    (source, target), _ = batch
    plain = model((source, target)).numpy()
    for column in range(5):
        other = source.copy()
        other[0, column] = 10
        assert np.abs(model((other, target)) - plain)[0].max(axis=-1).min() > 1e-6


def test_steps_equal_the_full_pass_at_every_position(build_any, batch):
    model = build_any()
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6], [2, 9, 9, 10], [2, 3, 1, 7]], "int32")
    expected = model((source, target))
    _, layers = model.call_with_attention(source, target)
    state = model.init_state(model.encode(source), width=1, length=2)
    step = tf.function(model.step)
    for time in range(4):
        if time == 2:
            state = model.extend(state, 3)
        logits, state = step(tf.constant(target[:, time]), state)
        assert logits.dtype == tf.float32 and state.time == time + 1
        np.testing.assert_allclose(logits, expected[:, time], atol=1e-5)
        if layers:
            attention = tf.reduce_mean(layers[-1], axis=1)[:, time]
            np.testing.assert_allclose(state.attention, attention, atol=1e-5)
        else:
            assert state.attention.shape == (3, 0)


def test_hypotheses_reordered_at_every_step_equal_the_full_pass_of_what_they_descend_from(
    build_any, batch
):
    model = build_any()
    (source, _), _ = batch
    random = np.random.default_rng(4)
    width = 3
    state = model.init_state(model.encode(source), width, 6)
    histories = np.zeros([len(source) * width, 0], int)
    for _ in range(6):
        tokens = random.integers(3, 11, len(histories))
        histories = np.column_stack([histories, tokens])
        logits, state = model.step(tf.constant(tokens, tf.int32), state)
        expected = model((np.repeat(source, width, axis=0), histories))[:, -1]
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        parents = random.integers(width, size=[len(source), width])
        rows = (parents + np.arange(len(source))[:, np.newaxis] * width).ravel()
        histories = histories[rows]
        reordered = [tf.gather(tensor, rows) for tensor in tf.nest.flatten(state.hypotheses)]
        state = state._replace(hypotheses=tf.nest.pack_sequence_as(state.hypotheses, reordered))


def test_attention_is_to_the_real_source_tokens(build_any, batch):
    model = build_any()
    (source, target), _ = batch
    logits, layers = model.call_with_attention(source, target)
    np.testing.assert_allclose(logits, model((source, target)), atol=1e-6)
    count, heads = model.attention_shape
    assert len(layers) == count
    for weights in map(np.array, layers):
        assert weights.shape == (3, heads, 4, 5)
        real = np.broadcast_to((source != 0)[:, np.newaxis, np.newaxis], weights.shape)
        np.testing.assert_array_equal(weights[~real], 0)
        assert weights[real].min() > 0
        sums = weights.sum(axis=3)
        if model.one_sequence:
            assert sums.max() < 1, "some of it is to the target so far"
        else:
            np.testing.assert_allclose(sums, 1, atol=1e-5)


@pytest.mark.parametrize("dtype", POLICIES)
def test_source_of_padding_only_is_finite_with_its_gradients(dtype, build_kind, batch):
    model = build_kind(dtype=dtype)
    (source, target), labels = batch
    source = np.concatenate([source[:2], np.zeros([1, 5], int)])
    with tf.GradientTape() as tape:
        logits = model((source, target), training=True)
        loss, _ = MaskedCrossEntropy(0.1).sums(labels, logits)
    assert logits.dtype == tf.float32 and np.isfinite(logits).all()
    for gradient in tape.gradient(loss, model.trainable_weights):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_twenty_columns_of_padding_leave_loss_and_gradients_alone(build_any, batch, padded):
    model = build_any()
    (source, target), labels = batch

    def loss_and_gradients(source, target, labels):
        with tf.GradientTape() as tape:
            logits = model((source, target), training=True)
            loss, tokens = MaskedCrossEntropy(0.1).sums(labels, logits)
        gradients = tape.gradient(loss, model.trainable_weights)
        assert tokens.numpy() == 8
        return [loss, *map(tf.convert_to_tensor, gradients)]

    expected = loss_and_gradients(source, target, labels)
    actual = loss_and_gradients(padded(source), padded(target), padded(labels))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-4)
    assert all(np.abs(gradient).max() > 0 for gradient in expected)


@pytest.mark.parametrize("dtype", POLICIES)
def test_logits_and_weights_are_float32_and_near_in_every_policy(dtype, build_kind, batch):
    inputs, _ = batch
    model, plain = build_kind(dtype=dtype), build_kind()
    logits = model(inputs)
    assert logits.dtype == tf.float32
    assert {weight.dtype for weight in model.weights} == {"float32"}
    difference = np.abs(logits - plain(inputs)).mean()
    assert difference < 0.05 * np.std(plain(inputs))
    assert (difference == 0) == (dtype == "float32")
    stepped, _ = model.step(tf.constant([2, 2, 2]), model.init_state(model.encode(inputs[0]), 1, 1))
    assert np.abs(stepped - logits[:, 0]).mean() < 0.05 * np.std(logits)


def test_output_bias_is_added_to_every_logit(build_kind, batch):
    inputs, _ = batch
    model = build_kind(output_bias=True)
    plain = model(inputs).numpy()
    bias = model.output_projection.bias
    bias.assign(bias + np.arange(11.0))
    np.testing.assert_allclose(
        model(inputs) - plain, np.broadcast_to(np.arange(11.0), (3, 4, 11)), atol=1e-5
    )
    assert not hasattr(build_kind().output_projection, "bias")


def test_config_carries_every_argument(build_any):
    model = build_any(dropout=0.2, dtype="mixed_bfloat16", name="mine")
    config = keras.saving.serialize_keras_object(model)
    assert config["registered_name"] == f"kformer>{type(model).__name__}"
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == model.get_config()
    assert build_any.keywords.items() <= again.get_config().items()
    assert again.dtype_policy.name == "mixed_bfloat16" and again.name == "mine"
    assert [w.path for w in again.weights] == [w.path for w in model.weights]


@pytest.mark.parametrize("build", [make_transformer, make_recurrent])
@pytest.mark.parametrize(
    ("tie", "tables"),
    [
        ("all", {"target_embedding"}),
        ("target", {"target_embedding", "source_embedding"}),
        ("none", {"target_embedding", "source_embedding", "output_projection"}),
    ],
)
def test_tying_shares_the_tables_it_names(tie, tables, build):
    model = build(tie=tie)
    wide = [weight.path.split("/")[-2] for weight in model.weights if weight.shape == (11, 8)]
    assert sorted(wide) == sorted(tables)
