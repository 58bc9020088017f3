"""What ends training: its last update, time, patience, gradients that are no numbers, signals."""

import signal
from types import SimpleNamespace

import numpy as np
import pytest

from kformer.errors import InputError
from tests.training.callbacks.conftest import after_round, scored, set_up
from training.callbacks.measure import TranslationScores
from training.callbacks.stopping import (
    FiniteGuard,
    PatienceLimit,
    Signals,
    TimeLimit,
    TrainingInterrupt,
    UpdateLimit,
)
from training.data.rows import Pair


def test_training_stops_at_its_last_update_and_not_before(model):
    limit = set_up(UpdateLimit(3), model)
    stopped = []
    for model.optimizer.iterations.value in (1, 2, 3):
        limit.on_train_batch_end(0)
        stopped.append(model.stop_training)
    assert stopped == [False, False, True]


def test_an_update_that_overflowed_does_not_count(model):
    limit = set_up(UpdateLimit(2), model)
    for model.optimizer.iterations.value in (1, 1, 1):
        limit.on_train_batch_end(0)
    assert not model.stop_training


def test_training_stops_early_enough_for_a_last_validation_and_the_test(model, clock_at):
    # The test is as long as the validation text twice over.
    scores = scored()
    limit = set_up(
        TimeLimit(100.0, 10.0, scores.translator.translate, scores.sources, 2 * scores.sources),
        model,
    )
    clock_at(50)
    limit.on_train_batch_end(0)
    limit.on_test_begin()
    clock_at(60)  # Ten seconds of validation: thirty and a margin are needed at the end.
    after_round(limit)
    stopped = []
    for seconds in (70, 78, 80):
        clock_at(seconds)
        limit.on_train_batch_end(0)
        stopped.append(model.stop_training)
    assert stopped == [False, False, True]


def test_the_time_of_a_validation_is_known_before_the_first(model, clock_at):
    class SlowTranslator:
        """Takes a minute to trace, then a second a text."""

        calls = 0

        def translate(self, texts):
            self.calls += 1
            clock_at(10 + (60 if self.calls == 1 else 60 + len(texts)))

    pairs = [Pair(f"source {i}", "") for i in range(10)]
    scores = TranslationScores(SlowTranslator(), pairs, "13a")
    limit = set_up(
        TimeLimit(100.0, 10.0, scores.translator.translate, scores.sources, scores.sources), model
    )
    limit.on_train_begin()
    for seconds, stops in ((80, False), (88, False), (90, True)):
        clock_at(seconds)
        limit.on_train_batch_end(0)
        assert model.stop_training == stops


def test_training_stops_when_rounds_bring_nothing_better(model):
    best = SimpleNamespace(rounds_since_best=0)
    limit = set_up(PatienceLimit(2, best), model)
    stopped = []
    for best.rounds_since_best in (0, 1, 0, 1, 2):
        after_round(limit)
        stopped.append(model.stop_training)
    assert stopped == [False, False, False, False, True]


def test_gradients_that_are_no_numbers_end_training_with_the_batch_named(model):
    batch = (np.array([[7, 3, 0], [8, 9, 3]]), None), np.array([[5, 3, 0], [6, 6, 3]])
    keeper = SimpleNamespace(batches=12)
    asked = []
    guard = FiniteGuard(
        3,
        lambda number: asked.append(number) or batch,
        lambda ids: [f"ids {ids[0].tolist()}"],
        keeper,
    )
    set_up(guard, model)
    for model.optimizer.left_out_in_a_row.value in (0, 1, 2, 0, 1):
        guard.on_train_batch_end(0)
    model.optimizer.left_out_in_a_row.value = 3
    with pytest.raises(InputError, match=r"3 updates in a row.*batch 12 .*ids \[8, 9, 3\].*0.25"):
        guard.on_train_batch_end(0)
    assert asked == [11]


def test_a_line_that_training_diverged_at_is_told_by_its_labels(model):
    batch = (np.array([[3], [3]]), None), np.array([[5, 3, 0], [6, 6, 3]])
    model.optimizer.left_out_in_a_row.value = 3
    guard = FiniteGuard(
        3, lambda number: batch, lambda ids: ["" if ids[0][0] == 3 else f"ids {ids[0].tolist()}"],
        SimpleNamespace(batches=12),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"sentence is 'ids \[6, 6, 3\]'"):
        set_up(guard, model).on_train_batch_end(0)


class FakeKeeper:
    round_batches = 4

    def __init__(self, batches):
        self.batches = batches
        self.saved = 0

    def save(self):
        self.saved += 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_after_the_update_and_ends_training(model, number):
    usual = signal.getsignal(number)
    keeper = FakeKeeper(6)
    with Signals(keeper, lambda *flags: list(flags)) as signals:
        set_up(signals, model).on_train_batch_end(0)
        signal.raise_signal(number)
        assert keeper.saved == 0
        with pytest.raises(TrainingInterrupt) as caught:
            signals.on_train_batch_end(0)
    assert keeper.saved == 1 and caught.value.signal_number == number
    assert signal.getsignal(number) is usual


def test_a_signal_in_the_last_update_of_a_round_waits_for_the_validation(model):
    keeper = FakeKeeper(8)
    with Signals(keeper, lambda *flags: list(flags)) as signals:
        set_up(signals, model)
        signal.raise_signal(signal.SIGTERM)
        signals.on_train_batch_end(0)
        with pytest.raises(TrainingInterrupt):
            signals.on_epoch_end(0)
    assert keeper.saved == 0, "the end of a round saves by itself"


def test_what_one_worker_was_told_all_workers_do(model):
    keeper = FakeKeeper(6)
    with Signals(keeper, lambda stop, interrupted, terminated: [False, False, True]) as signals:
        with pytest.raises(TrainingInterrupt):
            set_up(signals, model).on_train_batch_end(0)
    with Signals(keeper, lambda *flags: [True, False, False]) as signals:
        set_up(signals, model).on_train_batch_end(0)
    assert model.stop_training
