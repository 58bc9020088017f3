"""What is read of the figures of a training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.compare.rounds import best_round, mean_rounds, minutes, tokens_per_second

ROUNDS = [
    {"update": 10, "val_loss": 3.0, "val_bleu": 5.0, "val_chrf": 40.0},
    {"update": 20, "val_loss": 2.5, "val_bleu": 9.0, "val_chrf": 38.0},
    {"update": 30, "val_loss": 2.0, "val_bleu": 9.0, "val_chrf": 39.0},
    {"update": 40, "val_loss": 1.9, "val_bleu": 8.0, "val_chrf": 39.0},
]


@pytest.mark.parametrize(("best_by", "update"), [("bleu", 30), ("chrf", 10), ("loss", 40)])
def test_the_best_round_is_the_one_whose_model_was_kept(best_by, update):
    assert best_round(ROUNDS, best_by)["update"] == update


def test_a_training_that_went_on_took_all_of_its_parts():
    assert minutes([{"seconds": value} for value in (60, 120, 210)]) == 3.5


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=6))
def test_speed_is_that_of_all_tokens_in_all_seconds(speeds):
    tokens = np.full(len(speeds), 1000.0)
    seconds = tokens / np.array(speeds)
    found = tokens_per_second([{"tokens_per_second": speed} for speed in speeds])
    assert found == pytest.approx(tokens.sum() / seconds.sum())


def test_a_round_without_a_speed_is_not_counted():
    rounds = [{"tokens_per_second": speed} for speed in (0.0, 500.0)]
    assert tokens_per_second(rounds) == 500.0
    assert tokens_per_second(rounds[:1]) == 0.0


def test_curves_are_means_where_all_seeds_have_figures():
    first = [{"update": 2, "a": 1.0, "b": np.inf}, {"update": 4, "a": 2.0, "b": 1.0}]
    second = [{"update": 2, "a": 3.0, "b": 5.0}]
    third = [*second, {"update": 6, "a": 0.0, "b": 0.0}]
    assert mean_rounds([first, second, third]) == [
        {"update": 2, "a": pytest.approx(np.mean([1, 3, 3]))}
    ]
    assert mean_rounds([first]) == [{"update": 2, "a": 1.0}, first[1]]
