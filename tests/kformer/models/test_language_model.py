import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity
from kformer.models import LanguageModel
from kformer.search import Beam, Greedy
from tests.kformer.search.references import all_sequences

OPTION_SETS = {
    "pre-norm": dict(),
    "learned, untied": dict(positions="learned", max_length=12, tie="none", activation="gelu"),
    "post-norm, halves": dict(
        norm="post", positions="sinusoidal_halves", activation="swish", output_bias=True
    ),
    "rotary": dict(positions="rotary", tie="none", embedding_dim=6),
    "additive": dict(attention="additive", num_decoder_layers=1),
    "no positions": dict(positions="none", scale_embedding=False, num_decoder_layers=1),
}
POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]


@pytest.fixture
def build():
    """A tiny model, two layers deep, with a random value for every weight."""

    def build(**options):
        sizes = dict(
            vocab_size=11, d_model=8, num_heads=2, d_ff=12, num_decoder_layers=2, dropout=0.0
        )
        model = LanguageModel(**{**sizes, **options})
        random = np.random.default_rng(0)
        for variable in model.trainable_variables:
            noise = random.normal(size=variable.shape)
            variable.assign(0.4 * noise + (variable.name == "gamma"))
        return model

    return build


@pytest.fixture(params=OPTION_SETS)
def options(request):
    return OPTION_SETS[request.param]


def real_length(ids):
    return int(np.count_nonzero(ids))


def test_a_row_is_one_sequence_without_the_padding_between(options, build, batch):
    """Source, start and target, written as a target alone, have the same logits."""
    model = build(**options)
    (source, target), _ = batch
    together = model((source, target))
    for row in range(len(source)):
        whole = np.concatenate([source[row][source[row] != 0], target[row][target[row] != 0]])
        alone = model((np.zeros([1, 0], int), whole[np.newaxis]))[0]
        length = real_length(target[row])
        np.testing.assert_allclose(together[row, :length], alone[-length:], atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sentence_alone_equals_the_sentence_in_a_padded_batch(
    compiled, options, build, batch, padded
):
    model = build(**options)
    run = lambda source, target: model((source, target))  # noqa: E731
    if compiled:
        ids = tf.TensorSpec([None, None], tf.int64)
        run = tf.function(run, input_signature=[ids, ids])
    (source, target), _ = batch
    together = run(padded(source, 3), padded(target, 4))
    for row in range(len(source)):
        source_length, length = real_length(source[row]), real_length(target[row])
        alone = run(source[row : row + 1, :source_length], target[row : row + 1, :length])
        np.testing.assert_allclose(together[row, :length], alone[0], atol=1e-5)


def test_logits_read_all_of_the_source_and_no_target_token_after_their_own(build, batch):
    model = build()
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6, 7]] * 3)
    plain = model((source, target)).numpy()
    for changed in range(5):
        other = target.copy()
        other[:, changed] = 10
        differs = np.abs(model((source, other)) - plain).max(axis=(0, 2))
        np.testing.assert_array_equal(differs[:changed], 0)
        assert differs[changed:].min() > 1e-4, "the token itself and all after it must see it"
        other = source.copy()
        other[0, changed] = 10
        assert np.abs(model((other, target)) - plain)[0].max(axis=-1).min() > 1e-5


def test_steps_equal_the_full_pass_at_every_position(options, build, batch):
    model = build(**options)
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6], [2, 9, 9, 10], [2, 3, 1, 7]], "int32")
    expected, attention = model.call_with_attention(source, target)
    attention = tf.reduce_mean(attention[-1], axis=1)
    state = model.init_state(model.encode(source), width=1, length=2)
    step = tf.function(model.step)
    for time in range(4):
        if time == 2:
            state = model.extend(state, 3)
        logits, state = step(tf.constant(target[:, time]), state)
        assert logits.dtype == tf.float32
        np.testing.assert_allclose(logits, expected[:, time], atol=1e-5)
        np.testing.assert_allclose(state.attention, attention[:, time], atol=1e-5)


def test_hypotheses_reordered_at_every_step_equal_the_full_pass_of_what_they_descend_from(
    options, build, batch
):
    model = build(**options)
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
        state = state._replace(hypotheses=tf.gather(state.hypotheses, rows))


def test_attention_to_the_source_is_what_the_target_leaves(build, batch):
    model = build()
    (source, target), _ = batch
    logits, layers = model.call_with_attention(source, target)
    np.testing.assert_allclose(logits, model((source, target)), atol=1e-6)
    assert (len(layers), layers[0].shape[1]) == model.attention_shape
    real = np.broadcast_to((source != 0)[:, np.newaxis, np.newaxis], layers[0].shape)
    for weights in map(np.array, layers):
        assert weights.shape == (3, 2, 4, 5)
        np.testing.assert_array_equal(weights[~real], 0)
        assert weights[real].min() > 0 and weights.sum(axis=3).max() < 1


@pytest.mark.parametrize("dtype", POLICIES)
def test_source_of_padding_only_is_finite_with_its_gradients(dtype, build, batch):
    model = build(dtype=dtype)
    (source, target), labels = batch
    source = np.concatenate([source[:2], np.zeros([1, 5], int)])
    with tf.GradientTape() as tape:
        logits = model((source, target), training=True)
        loss, _ = MaskedCrossEntropy(0.1).sums(labels, logits)
    assert logits.dtype == tf.float32 and np.isfinite(logits).all()
    for gradient in tape.gradient(loss, model.trainable_weights):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_padding_leaves_loss_and_gradients_alone(options, build, batch, padded):
    model = build(**options)
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


def test_learned_positions_are_of_source_and_target_together(build):
    model = build(positions="learned", max_length=7)
    source = np.array([[4, 5, 3, 0, 0, 0, 0]])
    assert model.max_positions == 7 and model.one_sequence
    assert model((source, np.array([[2, 4, 5, 6]]))).shape == (1, 4, 11)
    with pytest.raises(ValueError, match="7 learned positions .*Received: 8 positions"):
        model((source, np.array([[2, 4, 5, 6, 7]])))


def test_perplexity_is_of_the_target_tokens_alone(build, batch):
    (source, target), labels = batch
    model = build()
    model.compile("sgd", MaskedCrossEntropy(0.1), metrics=[Perplexity()], run_eagerly=True)
    logs = model.evaluate((source, target), labels, return_dict=True, verbose=0)
    logits = model((source, target)).numpy().astype("float64")
    total = 0.0
    for where, label in np.ndenumerate(labels):
        if label:
            total -= logits[where][label] - np.log(np.exp(logits[where]).sum())
    assert logs["perplexity"] == pytest.approx(np.exp(total / 8), rel=1e-5)
    assert logs["loss"] == pytest.approx(total / 8, rel=1e-5)


def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_sequences(build):
    model = build(vocab_size=6)
    source = np.array([[4, 5, 3, 0], [5, 3, 0, 0]])
    result = Beam(size=8, n_best=3)(model, model.encode(source), [3, 3])
    candidates = list(all_sequences(6, 3))
    rows = [tokens + [PAD_ID] * (3 - len(tokens)) for tokens in candidates]
    labels = np.array(rows)
    inputs = np.column_stack([np.full(len(rows), START_ID), labels[:, :-1]])
    for row in range(2):
        logits = model((np.repeat(source[[row]], len(rows), axis=0), inputs)).numpy()
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        scores = np.take_along_axis(log_probabilities, labels[:, :, np.newaxis], 2)[:, :, 0]
        scores = (scores * (labels != PAD_ID)).sum(axis=1)
        best = np.argsort(-scores)[:3]
        np.testing.assert_array_equal(result.tokens[row], labels[best])
        np.testing.assert_allclose(result.score[row], scores[best], atol=1e-4)


def test_sentences_without_a_source_learned_by_heart_are_recited():
    """Twenty lines that begin with a token of their own, each continued from that."""
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(3)
    labels = np.zeros([20, 8], "int32")
    for row in range(20):
        length = random.integers(3, 8)
        labels[row, :length] = [4 + row, *random.integers(4, 24, length - 1)]
        labels[row, length] = END_ID
    source = np.full([20, 1], END_ID)
    inputs = np.column_stack([np.full(20, START_ID), labels[:, :-1]])
    model = LanguageModel(24, 64, 4, 128, num_decoder_layers=1, dropout=0)
    model.compile(keras.optimizers.Adam(2e-3), MaskedCrossEntropy(label_smoothing=0.1))
    model.fit(tf.data.Dataset.from_tensors(((source, inputs), labels)).repeat(150), verbose=0)
    result = Greedy()(model, model.encode(source), np.full(20, 8), labels[:, :1])
    tokens = result.tokens.numpy()[:, 0]
    np.testing.assert_array_equal(tokens, labels[:, : tokens.shape[1]])
    assert result.ended.numpy().all()


def test_a_saved_model_is_the_same_in_a_fresh_process(tmp_path, build, batch):
    (source, target), _ = batch
    model = build(positions="learned", max_length=12, tie="none", output_bias=True)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "given.npz", source=source, target=target)
    program = (
        "import sys, keras, numpy as np, kformer.models\n"
        "folder = sys.argv[1]; given = np.load(f'{folder}/given.npz')\n"
        "model = keras.saving.load_model(f'{folder}/model.keras')\n"
        "np.save(f'{folder}/logits.npy', model((given['source'], given['target'])))\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=True, cwd=Path(__file__).parents[3]
    )
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), model((source, target)))


def test_tying_and_bias_are_as_asked_for(build, batch):
    inputs, _ = batch
    tied, untied = build(), build(tie="none")
    tables = lambda model: [w.path for w in model.weights if w.shape == (11, 8)]  # noqa: E731
    assert (len(tables(tied)), len(tables(untied))) == (1, 2)
    model = build(output_bias=True)
    plain = model(inputs).numpy()
    model.output_projection.bias.assign_add(np.arange(11.0))
    np.testing.assert_allclose(
        model(inputs) - plain, np.broadcast_to(np.arange(11.0), (3, 4, 11)), atol=1e-5
    )
    with pytest.raises(ValueError, match="Received: tie='target'"):
        build(tie="target")


@pytest.mark.parametrize("dtype", POLICIES)
def test_logits_and_weights_are_float32_and_near_in_every_policy(dtype, build, batch):
    inputs, _ = batch
    model, plain = build(dtype=dtype), build()
    logits = model(inputs)
    assert logits.dtype == tf.float32
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert np.abs(logits - plain(inputs)).mean() < 0.05 * np.std(plain(inputs))
    stepped, _ = model.step(tf.constant([2, 2, 2]), model.init_state(model.encode(inputs[0]), 1, 1))
    assert np.abs(stepped - logits[:, 0]).mean() < 0.05 * np.std(logits)


def test_config_carries_every_argument(build, options):
    model = build(**options, attention_dropout=0.2, dtype="mixed_bfloat16", name="mine")
    config = keras.saving.serialize_keras_object(model)
    assert config["registered_name"] == "kformer>LanguageModel"
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == model.get_config()
    assert options.items() <= again.get_config().items()
    for layer in again.decoder.layers:
        assert layer.self_attention.weights_dropout.rate == 0.2
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
