import keras
import numpy as np
import pytest

from kformer.metrics import Perplexity, TokenAccuracy

METRICS = pytest.mark.parametrize("cls", [TokenAccuracy, Perplexity])


@pytest.fixture
def batches():
    """Three of unequal numbers of tokens, one of which has none."""
    random = np.random.default_rng(0)
    labels = [np.array([[3, 1, 4], [2, 1, 0]]), np.array([[1, 0]]), np.zeros([2, 2], int)]
    return [(y, random.normal(size=(*y.shape, 5)).astype("float32") * 2) for y in labels]


def tokens(batches):
    return [
        (label, logits[where])
        for labels, logits in batches
        for where, label in np.ndenumerate(labels)
        if label != 0
    ]


def updated(metric, batches):
    for labels, logits in batches:
        metric.update_state(labels, logits)
    return metric.result().numpy()


def test_accuracy_is_the_share_of_tokens_over_all_batches(batches):
    batches[0][1][0, 0, 3] = batches[1][1][0, 0, 1] = 9  # two at least are right
    right = [label == logits.argmax() for label, logits in tokens(batches)]
    assert 0 < sum(right) < 6
    assert updated(TokenAccuracy(), batches) == pytest.approx(sum(right) / 6)


def test_perplexity_is_exp_of_the_loss_per_token_over_all_batches(batches):
    losses = [np.log(np.exp(logits).sum()) - logits[y] for y, logits in tokens(batches)]
    assert updated(Perplexity(), batches) == pytest.approx(np.exp(sum(losses) / 6), rel=1e-5)


@METRICS
def test_padding_changes_nothing(cls, batches):
    padded = [
        (np.pad(labels, [(0, 1), (0, 2)]), np.pad(logits, [(0, 1), (0, 2), (0, 0)]))
        for labels, logits in batches
    ]
    assert updated(cls(), padded) == pytest.approx(updated(cls(), batches), rel=1e-6)


@METRICS
@pytest.mark.parametrize("rubbish", [np.nan, np.inf])
def test_rubbish_under_padding_changes_nothing(cls, rubbish, batches):
    dirty = [(y, np.where(y[..., None] == 0, np.float32(rubbish), x)) for y, x in batches]
    assert updated(cls(), dirty) == pytest.approx(updated(cls(), batches), rel=1e-6)


@METRICS
def test_sentences_of_weight_two_count_twice(cls, batches):
    (labels, logits), *_ = batches
    weighted, repeated = cls(), cls()
    weighted.update_state(labels, logits, sample_weight=np.array([2, 1]))
    repeated.update_state(labels[[0, 0, 1]], logits[[0, 0, 1]])
    np.testing.assert_allclose(weighted.result(), repeated.result(), rtol=1e-6)


@METRICS
def test_reset_forgets_and_nothing_seen_is_finite(cls, batches):
    metric = cls()
    nothing = metric.result().numpy()
    assert nothing == {TokenAccuracy: 0, Perplexity: 1}[cls]
    assert updated(metric, batches) != nothing
    metric.reset_state()
    assert metric.result().numpy() == nothing


@METRICS
def test_comes_back_from_its_config(cls):
    config = keras.saving.serialize_keras_object(cls(pad_id=4, name="mine"))
    assert config["registered_name"] == f"kformer>{cls.__name__}"
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is cls and again.pad_id == 4 and again.name == "mine"
