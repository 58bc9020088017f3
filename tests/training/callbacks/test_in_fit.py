"""Callbacks in a training of Keras."""

import math

import keras
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models import Transformer
from kformer.optimizers import Adam
from kformer.schedules import LinearSchedule
from tests.training.callbacks.conftest import watch_time
from training.callbacks.measure import Throughput
from training.callbacks.stopping import (
    UpdateLimit,
)


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rounds = []

    def on_epoch_end(self, epoch, logs=None):
        self.rounds.append(dict(logs))


# Labels: 5 + 2 + 3 tokens of the first batch, 2 of the second.
BATCHES = [
    (([[4, 3], [5, 3], [6, 3]], [[2, 5, 6, 7, 4], [2, 5, 0, 0, 0], [2, 4, 4, 0, 0]]),
     [[5, 6, 7, 4, 3], [5, 3, 0, 0, 0], [4, 4, 3, 0, 0]]),
    (([[4, 3]], [[2, 5, 0, 0]]), [[5, 3, 0, 0]]),
]  # fmt: skip
TOKENS = [10, 2]


def batches():
    ids = tf.TensorSpec((None, None), tf.int32)
    return tf.data.Dataset.from_generator(lambda: BATCHES, output_signature=((ids, ids), ids))


@pytest.fixture(scope="module")
def fitted():
    """Rounds of two updates, of 10 and 2 target tokens, by a clock that ticks at each update."""
    model = Transformer(
        9, 9, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1
    )
    model.compile(
        Adam(LinearSchedule(0.01, 2, 5)),
        MaskedCrossEntropy(),
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=True,
    )
    seconds = iter(range(1000))
    recorder, throughput = Recorder(), Throughput()
    with pytest.MonkeyPatch.context() as patch:
        watch_time(patch, lambda: float(next(seconds)))
        model.fit(
            batches().repeat(),
            validation_data=batches().repeat(2),
            steps_per_epoch=2,
            epochs=9,
            callbacks=[UpdateLimit(5), throughput, recorder],
            verbose=0,
        )
    return model, recorder.rounds, throughput


def test_fit_ends_at_the_last_update_after_a_last_validation(fitted):
    model, rounds, _ = fitted
    assert int(model.optimizer.iterations) == 5
    assert [logs["update"] for logs in rounds] == [2, 4, 5]
    assert all(math.isfinite(logs["val_loss"]) for logs in rounds)


def test_throughput_counts_the_target_tokens_of_training_without_padding(fitted):
    _, rounds, throughput = fitted
    # A tick an update. The first one of the run, which is traced, counts for nothing, and so does
    # validation, with twice the tokens.
    expected = [TOKENS[1] / 1, sum(TOKENS) / 2, TOKENS[0] / 1]
    assert [logs["tokens_per_second"] for logs in rounds] == pytest.approx(expected)
    assert throughput.average == pytest.approx((TOKENS[1] + sum(TOKENS) + TOKENS[0]) / 4)


def test_there_is_an_average_throughput_of_a_run_that_never_began():
    assert Throughput().average == 0.0


def test_the_rate_logged_is_that_of_the_schedule(fitted):
    _, rounds, _ = fitted
    schedule = LinearSchedule(0.01, 2, 5)
    expected = [float(schedule(logs["update"])) for logs in rounds]
    assert [logs["learning_rate"] for logs in rounds] == pytest.approx(expected)
