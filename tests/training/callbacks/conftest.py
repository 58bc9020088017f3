"""What tests of single callbacks share."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from kformer.run_folder import RunFolder
from training.callbacks import measure, metrics_file, progress, stopping, tensorboard
from training.callbacks.measure import TranslationScores
from training.data.rows import Pair

PAIRS = [Pair(f"source {i}", f"a b c d e target {i}") for i in range(7)]
LOGS = {
    "loss": 3.5, "accuracy": 0.25, "perplexity": 33.1, "val_loss": 3.25, "val_accuracy": 0.5,
    "val_perplexity": 25.8, "val_bleu": 12.5, "val_chrf": 30.25, "learning_rate": 0.001,
    "tokens_per_second": 1234.5, "update": 20,
}  # fmt: skip


class Variable:
    def __init__(self, value=0):
        self.value = value

    def numpy(self):
        return np.array(self.value)


class FakeModel:
    """Counts its updates."""

    def __init__(self):
        self.optimizer = SimpleNamespace(
            iterations=Variable(),
            left_out=Variable(),
            left_out_in_a_row=Variable(),
            gradient_norm=Variable(1.5),
            learning_rate=0.25,
        )
        self.seen = Variable([0.0, 0.0, 0.0])
        self.stop_training = False


class FakeTranslator:
    """Translates correctly but for the texts that it is told to miss."""

    def __init__(self, missed=()):
        self.missed = missed

    def translate(self, texts):
        correct = {pair.source: pair.target for pair in PAIRS}
        return ["missed" if text in self.missed else correct[text] for text in texts]


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


@pytest.fixture
def writer(run):
    """Of the event files."""
    return tf.summary.create_file_writer(str(run.logs))


@pytest.fixture
def model():
    return FakeModel()


@pytest.fixture
def clock_at(monkeypatch):
    """Sets the time that the callbacks see."""
    now = SimpleNamespace(seconds=0.0)
    watch_time(monkeypatch, lambda: now.seconds)

    def clock_at(seconds):
        now.seconds = seconds

    return clock_at


def watch_time(patch, seconds):
    for module in (measure, metrics_file, progress, stopping, tensorboard):
        patch.setattr(module, "time", SimpleNamespace(perf_counter=seconds), raising=False)


def set_up(callback, model):
    callback.set_model(model)
    return callback


def after_round(callback, **logs):
    logs = {**LOGS, **logs}
    callback.on_epoch_end(0, logs)
    return logs


def scored(missed=()):
    return TranslationScores(FakeTranslator(missed), PAIRS, "13a")
