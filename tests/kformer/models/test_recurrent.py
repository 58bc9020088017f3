import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.ids import END_ID
from kformer.losses import MaskedCrossEntropy
from kformer.models import Recurrent
from kformer.search import Beam
from tests.kformer.models.conftest import make_recurrent
from tests.kformer.search.references import all_sequences

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
IDS = tf.TensorSpec([None, None], tf.int64)


@pytest.fixture
def build():
    return make_recurrent


def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_sequences(build):
    vocab, limit = END_ID + 3, 4
    model = build(attention="additive", source_vocab_size=vocab, target_vocab_size=vocab)
    table = model.target_embedding.embedding
    table.assign(3 * table)
    source = np.array([[4, 5, 4], [5, 0, 0]])
    result = Beam(size=16, n_best=3)(model, model.encode(source), [limit] * 2)
    sequences = list(all_sequences(vocab, limit))
    for row in range(2):
        sums = []
        for tokens in sequences:
            target = np.array([[2, *tokens[:-1]]])
            logits = tf.nn.log_softmax(model((source[row : row + 1], target)))[0].numpy()
            sums.append(sum(logits[range(len(tokens)), tokens]))
        best = np.argsort(sums)[::-1][:3]
        found = [tokens[tokens != 0].tolist() for tokens in result.tokens[row].numpy()]
        assert found == [list(sequences[index]) for index in best]
        np.testing.assert_allclose(result.score[row], np.array(sums)[best], atol=1e-4)


def test_a_batch_in_parts_gives_the_update_of_the_whole(build, batch):
    updated = []
    for parts in (1, 2):
        model = build(attention="additive", bidirectional=True, num_decoder_layers=1)
        before = model.get_weights()
        model.compile(keras.optimizers.SGD(10.0), MaskedCrossEntropy(0.1))
        model.accumulate = parts
        model.fit(*batch, batch_size=3, verbose=0)
        updated.append(model.get_weights())
    for one, other, old in zip(*updated, before, strict=True):
        moved = np.abs(one - old).max()
        assert moved > 0
        np.testing.assert_allclose(one, other, atol=1e-6 + 1e-3 * moved)


def test_half_precision_trains_on_dropout(batch):
    model = Recurrent(
        11, 11, 16, num_encoder_layers=1, bidirectional=True, input_feeding=True,
        dtype="mixed_float16",
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossEntropy())
    data = tf.data.Dataset.from_tensors(batch).repeat()
    history = model.fit(data, epochs=2, steps_per_epoch=20, verbose=0).history["loss"]
    assert np.isfinite(history).all() and history[1] < 0.7 * history[0]
    assert {weight.dtype for weight in model.weights} == {"float32"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(tie="both"), "Received: tie='both'"),
        (dict(source_vocab_size=12), "source_vocab_size=12, target_vocab_size=11"),
        (dict(embedding_dim=6), "Received: embedding_dim=6, d_model=8, tie='all'"),
    ],
)
def test_tables_that_cannot_be_one_are_refused(options, message, build):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize(
    "changed",
    [
        dict(cell="gru"), dict(attention="additive"), dict(attention="none"),
        dict(input_feeding=True), dict(bidirectional=True),
    ],
    ids=str,
)  # fmt: skip
def test_each_option_changes_the_function(changed, build, batch):
    inputs, _ = batch
    assert np.abs(build(**changed)(inputs) - build()(inputs)).max() > 1e-3
