import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy

RATE = 0.5
SHALLOW = dict(num_encoder_layers=1, num_decoder_layers=1)  # quicker to trace


def compiled(model, optimizer=None, **options):
    model.compile(
        optimizer or keras.optimizers.SGD(RATE),
        loss=MaskedCrossEntropy(label_smoothing=0.1),
        metrics=[TokenAccuracy(), Perplexity()],
        **options,
    )
    return model


def eager(model):
    """For a single update, which is not worth a trace."""
    return compiled(model, run_eagerly=True)


def batches(*parts):
    """A dataset of the given ((source, target), labels)."""
    return tf.data.Dataset.from_generator(
        lambda: iter(parts),
        output_signature=(
            (tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None, None], tf.int64)),
            tf.TensorSpec([None, None], tf.int64),
        ),
    )


@pytest.fixture
def unequal(batch):
    """The batch in two parts, of three tokens and of five, padded to unequal widths."""
    (source, target), labels = batch
    return [
        ((source[:1], target[:1]), labels[:1]),
        ((np.pad(source[1:], [(0, 0), (0, 2)]), target[1:]), labels[1:]),
    ]


def loss_per_token(model, data, smoothing):
    """In numpy, over all of the data."""
    total = tokens = 0
    for inputs, labels in data:
        logits = model(inputs).numpy().astype("float64")
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for where, label in np.ndenumerate(labels):
            if label:
                own = log_probabilities[where]
                total -= (1 - smoothing) * own[label] + smoothing * own.mean()
                tokens += 1
    return total / tokens


def test_one_update_is_a_step_down_the_loss_per_token(build, batch):
    inputs, labels = batch
    model, reference = eager(build()), build()
    with tf.GradientTape() as tape:
        loss, tokens = MaskedCrossEntropy(0.1).sums(labels, reference(inputs))
        loss /= 8
    assert tokens.numpy() == 8
    gradients = tape.gradient(loss, reference.trainable_weights)
    logs = model.train_on_batch(inputs, labels, return_dict=True)
    assert logs["loss"] == pytest.approx(loss.numpy(), rel=1e-5)
    for new, old, gradient in zip(
        model.trainable_weights, reference.trainable_weights, gradients, strict=True
    ):
        expected = old - RATE * tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(new, expected, atol=1e-5, rtol=1e-4)


def test_padding_a_batch_changes_no_updated_weight(build, batch, padded):
    (source, target), labels = batch
    plain, wide = eager(build()), eager(build())
    before = [weight.numpy() for weight in plain.trainable_weights]
    plain.train_on_batch((source, target), labels)
    wide.train_on_batch((padded(source), padded(target)), padded(labels))
    for one, other in zip(plain.trainable_weights, wide.trainable_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-4)
    assert any(np.any(old != new) for old, new in zip(before, plain.trainable_weights, strict=True))


def test_a_batch_without_tokens_changes_nothing(build, batch):
    (source, target), labels = batch
    model = eager(build())
    before = [weight.numpy() for weight in model.trainable_weights]
    logs = model.train_on_batch((source, target), np.zeros_like(labels), return_dict=True)
    assert logs["loss"] == 0
    for old, new in zip(before, model.trainable_weights, strict=True):
        np.testing.assert_array_equal(old, new)


def test_sentence_weights_reach_the_update(build, batch):
    """A sentence of weight 0 might as well be missing."""
    (source, target), labels = batch
    weighted, fewer = eager(build()), eager(build())
    weighted.train_on_batch((source, target), labels, sample_weight=np.array([1.0, 0.0, 1.0]))
    fewer.train_on_batch((source[[0, 2]], target[[0, 2]]), labels[[0, 2]])
    for one, other in zip(weighted.trainable_weights, fewer.trainable_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-4)


def test_evaluation_is_plain_and_weighs_batches_by_their_tokens(build, unequal):
    model = compiled(build(**SHALLOW))
    logs = model.evaluate(batches(*unequal), return_dict=True, verbose=0)
    expected = loss_per_token(model, unequal, smoothing=0.0)
    assert logs["loss"] == pytest.approx(expected, rel=1e-5)
    assert logs["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
    best = [(model(inputs).numpy().argmax(-1), labels) for inputs, labels in unequal]
    right = sum(np.sum((one == labels) & (labels != 0)) for one, labels in best)
    assert logs["accuracy"] == pytest.approx(right / 8)
    assert set(logs) == {"loss", "perplexity", "accuracy"}
    # The same in Keras' default form: one number each, loss first.
    assert model.evaluate(batches(*unequal), verbose=0) == pytest.approx(
        [logs["loss"], logs["accuracy"], logs["perplexity"]]
    )


def test_fits_epoch_loss_is_smoothed_and_weighs_batches_by_their_tokens(build, unequal):
    model = compiled(build(**SHALLOW), keras.optimizers.SGD(0.0))
    history = model.fit(
        batches(*unequal), epochs=2, validation_data=batches(*unequal), verbose=0
    ).history
    smoothed, plain = (loss_per_token(model, unequal, smoothing) for smoothing in (0.1, 0.0))
    assert history["loss"] == pytest.approx([smoothed] * 2, rel=1e-5)
    assert history["val_loss"] == pytest.approx([plain] * 2, rel=1e-5)
    assert history["val_perplexity"] == pytest.approx([np.exp(plain)] * 2, rel=1e-5)
    assert abs(smoothed - plain) > 0.01


def test_float16_trains_behind_a_loss_scale(build, unequal):
    model = compiled(build(dtype="mixed_float16", **SHALLOW), keras.optimizers.Adam(0.01))
    data = batches(*unequal).repeat()
    history = model.fit(data, epochs=2, steps_per_epoch=30, verbose=0).history
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert np.isfinite(history["loss"]).all()
    assert history["perplexity"][1] < 0.7 * history["perplexity"][0]


@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", None])
def test_other_losses_are_refused_as_they_count_padding(loss, build, batch):
    inputs, labels = batch
    model = build()
    model.compile("sgd", loss=loss, run_eagerly=True)
    with pytest.raises(ValueError, match="needs a kformer.losses.MaskedCrossEntropy"):
        model.fit(*batch, verbose=0)


def test_summary_counts_the_parameters(build):
    lines = []
    model = build()
    model.summary(print_fn=lines.append)
    assert f"{model.count_params():,}" in "\n".join(lines)
