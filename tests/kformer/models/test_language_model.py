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
from tests.kformer.models.conftest import LANGUAGE_MODELS, make_language_model
from tests.kformer.search.references import all_sequences


@pytest.fixture
def build():
    return make_language_model


@pytest.fixture(params=LANGUAGE_MODELS)
def options(request):
    return LANGUAGE_MODELS[request.param]


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
    assert tied.target_embedding is tied.embedding  # Where pretrained vectors go.
    model = build(output_bias=True)
    plain = model(inputs).numpy()
    model.output_projection.bias.assign_add(np.arange(11.0))
    np.testing.assert_allclose(
        model(inputs) - plain, np.broadcast_to(np.arange(11.0), (3, 4, 11)), atol=1e-5
    )
    with pytest.raises(ValueError, match="Received: tie='target'"):
        build(tie="target")
    with pytest.raises(ValueError, match="embedding_dim=6, d_model=8, tie=.all"):
        build(embedding_dim=6)


def test_sentences_that_reach_the_last_learned_position_wait_for_others(build):
    """Rows of unlike limits: those at theirs are stepped on beside the others."""
    model = build(positions="learned", max_length=24)
    source = np.zeros([4, 18], int)
    for row, length in enumerate((17, 5, 5, 5)):
        source[row, :length] = 4 + np.arange(length) % 6
        source[row, length] = END_ID
    limits = 24 - np.count_nonzero(source, axis=1)
    together = Beam(size=2)(model, model.encode(source), limits)
    for row in range(4):
        real = source[row : row + 1, : np.count_nonzero(source[row])]
        alone = Beam(size=2)(model, model.encode(real), limits[row : row + 1])
        length = alone.tokens.shape[2]
        np.testing.assert_array_equal(together.tokens[row, 0, :length], alone.tokens[0, 0])
