"""Beam search against exhaustive enumeration and a plain one in Python."""

import numpy as np
import pytest

from kformer.ids import END_ID
from kformer.search import Beam, Greedy
from tests.kformer.search.references import (
    HashModel,
    all_sequences,
    normalised,
    reference_beam,
)

PENALTIES = [
    dict(),
    dict(alpha=0.6),
    dict(alpha=1.0, form="power"),
    dict(alpha=-0.4),
    dict(alpha=0.8, beta=0.5),
    dict(beta=1.5),
]
ALL_PENALTIES = pytest.mark.parametrize(
    "penalties", PENALTIES, ids=lambda p: ",".join(f"{k}={v}" for k, v in p.items()) or "none"
)


def beam(size, n_best=1, alpha=0.0, form="gnmt", beta=0.0):
    return Beam(
        size=size, n_best=n_best, length_penalty=alpha, length_penalty_form=form,
        coverage_penalty=beta,
    )  # fmt: skip


@ALL_PENALTIES
@pytest.mark.parametrize("end", [-2.0, 0.0, 3.0])
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_sequences(penalties, end, hypotheses):
    """Three words and four steps: 3 + 9 + 27 + 81 starts, at most 81 of them side by side."""
    model = HashModel(vocab_size=END_ID + 4, end=end, seed=int(end) + 5)
    texts = np.arange(30) * 7 + 1
    limits = np.arange(30) % 4 + 1
    found = hypotheses(beam(81, 5, **penalties)(model, model.encode(texts), limits))
    early = 0
    for text, limit, of_text in zip(texts, limits, found, strict=True):
        everything = sorted(
            (
                (normalised(model, text, tokens, **penalties), tokens)
                for tokens in all_sequences(model.vocab_size, limit)
            ),
            reverse=True,
        )
        assert [tokens for tokens, *_ in of_text] == [tokens for _, tokens in everything[:5]]
        np.testing.assert_allclose(
            [score for *_, score, _ in of_text], [score for score, _ in everything[:5]], atol=1e-4
        )
        early += len(of_text[0][0]) < limit
    assert end < 0 or early > 3, "the example must have early finishers"


@ALL_PENALTIES
@pytest.mark.parametrize("size", [1, 4])
def test_a_narrow_beam_finds_what_a_plain_one_does_that_never_stops_early(
    penalties, size, hypotheses
):
    for seed in range(3):
        model = HashModel(end=seed - 1.0, seed=seed, sharpness=1 + seed)
        texts = np.arange(25) * 11 + seed
        limits = np.arange(25) % 12 + 1
        found = hypotheses(beam(size, size, **penalties)(model, model.encode(texts), limits))
        for text, limit, of_text in zip(texts, limits, found, strict=True):
            expected = reference_beam(model, text, limit, size, **penalties)[:size]
            assert [tokens for tokens, *_ in of_text] == [tokens for _, tokens in expected]
            np.testing.assert_allclose(
                [score for *_, score, _ in of_text], [score for score, _ in expected], atol=1e-4
            )


def test_early_stopping_saves_steps(hypotheses):
    model = HashModel(end=6.0)
    beam(4)(model, model.encode([1, 2, 3]), [60] * 3)
    assert model.steps < 30


@pytest.mark.parametrize("length", [5, 20])
def test_a_beam_of_one_is_greedy(length, hypotheses):
    model = HashModel(end=-1.0)
    texts, limits = np.arange(200), np.full(200, length)
    one = hypotheses(beam(1)(model, model.encode(texts), limits))
    greedy = hypotheses(Greedy()(model, model.encode(texts), limits))
    for ((tokens, _, total, *_),), ((expected, _, expected_total, *_),) in zip(
        one, greedy, strict=True
    ):
        assert tokens == expected
        assert total == pytest.approx(expected_total, abs=1e-4)


def test_without_a_penalty_a_beam_finds_what_is_at_least_as_likely_as_greedy(hypotheses):
    """Sharp models: where a beam loses the greedy path, which it may, the sum is still better."""
    better = total = 0
    for seed in range(4):
        model = HashModel(sharpness=3.0, seed=seed, end=-1.0)
        texts, limits = np.arange(100), np.full(100, 15)
        greedy = Greedy()(model, model.encode(texts), limits).score.numpy()[:, 0]
        found = beam(4)(model, model.encode(texts), limits).score.numpy()[:, 0]
        worse = found < greedy - 1e-4
        for text in texts[worse]:
            # Not a fault of ours: the plain search loses it too.
            (score, _), *_ = reference_beam(model, text, 15, 4)
            assert score == pytest.approx(found[text], abs=1e-4)
        assert worse.mean() <= 0.02
        better += (found > greedy + 1e-4).sum()
        total += len(texts)
    assert better > total / 4


@ALL_PENALTIES
def test_n_best_are_sorted_and_distinct(penalties, hypotheses):
    model = HashModel(end=-1.0)
    found = hypotheses(beam(6, 6, **penalties)(model, model.encode(np.arange(50)), [9] * 50))
    for of_text in found:
        tokens = [tuple(tokens) for tokens, *_ in of_text]
        assert len(set(tokens)) == len(tokens) == 6
        scores = [score for *_, score, _ in of_text]
        assert scores == sorted(scores, reverse=True)


def test_fewer_sequences_than_asked_for_are_all_found(hypotheses):
    model = HashModel(vocab_size=END_ID + 3)
    (found,) = hypotheses(beam(20, 20)(model, model.encode([1]), [2]))
    expected = sorted(map(tuple, all_sequences(model.vocab_size, 2)))
    assert sorted(tuple(tokens) for tokens, *_ in found) == expected
