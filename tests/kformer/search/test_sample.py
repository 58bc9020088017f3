"""Sampling: which tokens can be drawn, how often, and that chance is repeatable."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.search import Constraints, Sample
from kformer.search.filters import keep_min_p, keep_top_k, keep_top_p
from tests.kformer.search.references import HashModel


def kept(scores):
    return [set(np.flatnonzero(row > -1e8)) for row in scores.numpy()]


def rows(seed=0):
    random = np.random.default_rng(seed)
    scores = random.normal(size=[50, 30]) * random.uniform(0.1, 6, size=[50, 1])
    return scores.astype("float32")


def probabilities(scores):
    exponentials = np.exp(scores.astype("float64") - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 2, 7, 30, 99])
def test_top_k_keeps_the_k_highest(k):
    scores = rows()
    expected = [set(np.argsort(-row, kind="stable")[:k]) for row in scores]
    assert kept(keep_top_k(tf.constant(scores), k)) == expected


def test_of_equal_scores_top_k_keeps_the_first():
    assert kept(keep_top_k(tf.constant([[1.0, 2.0, 1.0, 1.0]]), 2)) == [{0, 1}]


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9, 0.999])
def test_top_p_keeps_the_fewest_that_reach_p(p):
    scores = rows()
    expected = []
    for row in probabilities(scores):
        order, chosen, total = np.argsort(-row, kind="stable"), set(), 0.0
        for token in order:
            if total >= p:
                break
            chosen.add(token)
            total += row[token]
        expected.append(chosen)
    assert kept(keep_top_p(tf.constant(scores), p)) == expected
    assert min(map(len, expected)) >= 1


@pytest.mark.parametrize("p", [0.01, 0.2, 1.0])
def test_min_p_keeps_what_is_near_enough_to_the_likeliest(p):
    scores = rows()
    expected = [set(np.flatnonzero(row >= p * row.max())) for row in probabilities(scores)]
    assert kept(keep_min_p(tf.constant(scores), p)) == expected


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_their_probability_says(temperature):
    model = HashModel(sharpness=1.0)
    search = Sample(n=4000, temperature=temperature, seed=1)
    drawn = search(model, model.encode([5]), [1]).tokens.numpy()[0, :, 0]
    logits = model.next_log_probabilities(5, [])[3:] / temperature
    expected = np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(drawn, minlength=model.vocab_size)
    assert counts[:3].sum() == 0
    # Four standard deviations of a share of 4000.
    np.testing.assert_allclose(counts[3:] / 4000, expected, atol=4 * np.sqrt(0.25 / 4000))


def test_filters_act_on_what_the_temperature_and_the_filters_before_leave():
    model = HashModel(sharpness=0.5)
    options = dict(temperature=0.6, top_k=5, top_p=0.8, min_p=0.1)
    drawn = Sample(n=3000, **options)(model, model.encode([5]), [1]).tokens.numpy()[0, :, 0]
    scores = model.next_log_probabilities(5, [])[np.newaxis] / 0.6
    scores[:, :3] = -1e9
    order = np.argsort(-scores[0])[:5]
    shares = np.exp(scores[0, order]) / np.exp(scores[0, order]).sum()
    order = order[np.cumsum(shares) - shares < 0.8]
    expected = {token for token in order if scores[0, token] >= scores.max() + np.log(0.1)}
    assert set(drawn) == expected and 1 < len(expected) < 5


def test_the_same_seed_draws_the_same_and_another_draws_others():
    model = HashModel(end=-9.0)

    def draw(seed):
        result = Sample(n=3, seed=seed)(model, model.encode(np.arange(20)), [15] * 20)
        return result.tokens.numpy()

    np.testing.assert_array_equal(draw(4), draw(4))
    one, other = draw(4), draw(5)
    assert one.shape != other.shape or (one != other).any()
    assert len({tuple(row) for row in one.reshape(-1, one.shape[2])}) > 55


def test_what_is_drawn_does_not_depend_on_the_limits_of_others():
    model = HashModel(end=-2.0)
    short = Sample(seed=2)(model, model.encode([1, 2]), [6, 6]).tokens.numpy()
    long = Sample(seed=2)(model, model.encode([1, 2]), [6, 40]).tokens.numpy()
    np.testing.assert_array_equal(short[0], long[0, :, :6])


def test_what_is_drawn_hangs_on_the_number_of_a_sentence_not_on_its_batch():
    model = HashModel(end=-9.0, sharpness=1.0)
    texts, draws = np.full(30, 7), np.arange(100, 130)

    def draw(rows):
        limits = [9] * len(rows)
        result = Sample(n=2, seed=3)(model, model.encode(texts[rows]), limits, draws=draws[rows])
        return np.pad(result.tokens, [(0, 0), (0, 0), (0, 9 - result.tokens.shape[2])])

    together = draw(np.arange(30))
    assert len(np.unique(together.reshape(60, 9), axis=0)) > 55
    for rows in (np.arange(29, 4, -3), np.array([11])):
        np.testing.assert_array_equal(draw(rows), together[rows])


def test_a_low_temperature_is_greedy_and_a_single_token_is_always_drawn():
    model = HashModel(sharpness=3.0)
    texts = np.arange(30)
    sharp = Sample(temperature=1e-4)(model, model.encode(texts), [8] * 30).tokens
    one = Sample(top_k=1, seed=9)(model, model.encode(texts), [8] * 30).tokens
    np.testing.assert_array_equal(sharp, one)


@pytest.mark.parametrize("temperature", [1e-30, 1e9, 1e30])
def test_no_temperature_draws_what_is_forbidden(temperature):
    model = HashModel()
    search = Sample(n=200, temperature=temperature, constraints=Constraints(forbidden_tokens=(5,)))
    result = search(model, model.encode([1]), [6], [[4, 6]])
    assert set(result.tokens[0, :, :2].numpy().ravel().tolist()) == {4, 6}
    drawn = result.tokens[0, :, 2:].numpy()
    assert not set(drawn.ravel().tolist()) & {1, 2, 5}


def test_the_likeliest_token_is_left_by_every_filter():
    scores = tf.constant(rows())
    for kept_of in (keep_top_p(scores, 1e-50), keep_top_k(scores, 1), keep_min_p(scores, 1.0)):
        assert kept(kept_of) == [{best} for best in scores.numpy().argmax(axis=1)]
