import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy

VOCAB = 5
LABELS = np.array([[3, 1, 4, 0], [2, 0, 0, 0], [0, 0, 0, 0]])  # four tokens


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(size=(3, 4, VOCAB)).astype("float32") * 2


def softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def target_distribution(label, smoothing):
    distribution = np.full(VOCAB, smoothing / VOCAB)
    distribution[label] += 1 - smoothing
    return distribution


def token_losses(labels, logits, smoothing):
    """{(row, column): cross-entropy} of the tokens that are no padding."""
    return {
        where: -np.sum(target_distribution(label, smoothing) * np.log(softmax(logits[where])))
        for where, label in np.ndenumerate(labels)
        if label != 0
    }


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_loss_is_the_mean_over_tokens_of_the_cross_entropy_with_smoothed_labels(smoothing, logits):
    expected = token_losses(LABELS, logits, smoothing)
    loss = MaskedCrossEntropy(smoothing)
    assert loss(LABELS, logits).numpy() == pytest.approx(sum(expected.values()) / 4, rel=1e-5)
    total, tokens = loss.sums(LABELS, logits)
    assert total.numpy() == pytest.approx(sum(expected.values()), rel=1e-5)
    assert tokens.numpy() == 4
    plain, _ = loss.sums(LABELS, logits, smooth=False)
    expected = sum(token_losses(LABELS, logits, 0).values())
    assert plain.numpy() == pytest.approx(expected, rel=1e-5)
    each = loss.call(LABELS, logits)
    for where, value in token_losses(LABELS, logits, smoothing).items():
        assert each[where].numpy() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_softmax_less_the_target_distribution(smoothing, logits):
    tensor = tf.constant(logits)
    weights = np.array([[1.0, 2.0, 0.5, 1.0]] * 3, "float32")
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        loss = MaskedCrossEntropy(smoothing)(LABELS, tensor, weights)
    expected = np.zeros_like(logits)
    for where in token_losses(LABELS, logits, smoothing):
        distribution = target_distribution(LABELS[where], smoothing)
        expected[where] = (softmax(logits[where]) - distribution) * weights[where] / 4.5
    np.testing.assert_allclose(tape.gradient(loss, tensor), expected, atol=1e-6)


@pytest.mark.parametrize("rubbish", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rubbish_under_padding_poisons_neither_loss_nor_gradient(rubbish, smoothing, logits):
    loss = MaskedCrossEntropy(smoothing)
    clean = tf.constant(logits)
    dirty = tf.constant(np.where(LABELS[..., None] == 0, rubbish, logits))
    values, gradients = [], []
    for tensor in (clean, dirty):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            value = loss(LABELS, tensor)
        values.append(value)
        gradients.append(tape.gradient(value, tensor))
    np.testing.assert_array_equal(*values)
    np.testing.assert_array_equal(*gradients)


def test_huge_logits_stay_finite():
    logits = tf.constant([[[1e30, -1e30, 0.0, 0.0, 0.0]]])
    assert MaskedCrossEntropy()([[1]], logits).numpy() == pytest.approx(2e30)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(dtype):
    # 5000 equal logits a token: a half-precision sum of 4096 losses would stop growing.
    logits = tf.zeros([1, 4096, VOCAB], dtype)
    total, tokens = MaskedCrossEntropy().sums(tf.ones([1, 4096], tf.int32), logits)
    assert total.dtype == tokens.dtype == tf.float32
    assert total.numpy() == pytest.approx(4096 * np.log(VOCAB), rel=1e-5)


@pytest.mark.parametrize(
    "weights", [[0.5, 3.0, 7.0], [[1.0, 0.0, 2.0, 9.0], [4.0, 9.0, 9.0, 9.0], [9.0] * 4]]
)
def test_weights_of_sentences_or_tokens_count_above_and_below(weights, logits):
    weights = np.array(weights, "float32")
    of_tokens = np.broadcast_to(weights if weights.ndim == 2 else weights[:, None], LABELS.shape)
    losses = token_losses(LABELS, logits, 0.1)
    expected = sum(of_tokens[where] * loss for where, loss in losses.items())
    total_weight = sum(of_tokens[where] for where in losses)
    loss = MaskedCrossEntropy(0.1)
    total, tokens = loss.sums(LABELS, logits, weights)
    assert total.numpy() == pytest.approx(expected, rel=1e-5)
    assert tokens.numpy() == pytest.approx(total_weight)
    assert loss(LABELS, logits, weights).numpy() == pytest.approx(expected / total_weight, rel=1e-5)


def test_no_token_is_a_loss_of_zero_without_a_gradient(logits):
    tensor = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        loss = MaskedCrossEntropy(0.1)(np.zeros_like(LABELS), tensor)
    assert loss.numpy() == 0
    np.testing.assert_array_equal(tape.gradient(loss, tensor), 0)


def test_another_label_may_mark_padding(logits):
    loss = MaskedCrossEntropy(pad_id=3)
    relabelled = np.where(LABELS == 0, 3, np.where(LABELS == 3, 0, LABELS))
    swapped = logits[..., [3, 1, 2, 0, 4]]
    expected = MaskedCrossEntropy()(LABELS, logits)
    np.testing.assert_allclose(loss(relabelled, swapped), expected, rtol=1e-5)


def test_lengths_may_be_unknown_in_a_graph(logits):
    loss = MaskedCrossEntropy(0.1)
    signature = [tf.TensorSpec(None, tf.int64), tf.TensorSpec([None, None, None])]
    signature[0] = tf.TensorSpec([None, None], tf.int64)
    graph = tf.function(lambda labels, logits: loss(labels, logits), input_signature=signature)
    np.testing.assert_allclose(graph(LABELS, logits), loss(LABELS, logits), rtol=1e-6)


def test_comes_back_from_its_config():
    loss = MaskedCrossEntropy(0.2, pad_id=7, name="mine")
    config = keras.saving.serialize_keras_object(loss)
    assert config["registered_name"] == "kformer>MaskedCrossEntropy"
    again = keras.saving.deserialize_keras_object(config)
    assert (again.label_smoothing, again.pad_id, again.name) == (0.2, 7, "mine")


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_other_smoothing_is_refused(smoothing):
    with pytest.raises(ValueError, match=f"Received: label_smoothing={smoothing}"):
        MaskedCrossEntropy(smoothing)
