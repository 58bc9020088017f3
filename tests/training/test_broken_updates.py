"""Numbers that are no numbers, in a training by `fit`."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.errors import InputError
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models import Transformer
from kformer.optimizers import Adam
from training.callbacks.stopping import FiniteGuard

SOURCE = np.array([[7, 8, 3], [9, 3, 0]], np.int32)
TARGET = np.array([[2, 5, 6], [2, 4, 0]], np.int32)
LABELS = np.array([[5, 6, 3], [4, 3, 0]], np.int32)


class Weights(keras.callbacks.Callback):
    """All weights and slots after each batch."""

    def __init__(self):
        super().__init__()
        self.after = []

    def on_train_batch_end(self, batch, logs=None):
        self.after.append(
            [*self.model.get_weights(), *(v.numpy() for v in self._slots()), logs["loss"]]
        )

    def _slots(self):
        optimizer = self.model.optimizer
        return [*optimizer.momentums, *optimizer.velocities, optimizer.iterations]


def make_model(dtype="float32", **options):
    model = Transformer(
        12, 12, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1,
        dropout=0.1, dtype=dtype,
    )  # fmt: skip
    model.compile(
        Adam(0.01, **options),
        MaskedCrossEntropy(0.1),
        metrics=[TokenAccuracy(), Perplexity()],
        auto_scale_loss=False,
    )
    return model


def batches(*weights):
    """The batch again and again, each time with another weight of its tokens."""
    ids = tf.TensorSpec((None, None), tf.int32)
    data = tf.data.Dataset.from_generator(
        lambda: (((SOURCE, TARGET), LABELS, np.float32([w, 1.0])) for w in weights),
        output_signature=((ids, ids), ids, tf.TensorSpec((None,), tf.float32)),
    )
    # Where the end comes unforeseen, Keras counts an update that it had no batch for.
    return data.apply(tf.data.experimental.assert_cardinality(len(weights)))


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_loss_that_is_no_number_never_reaches_weights_slots_or_figures(broken):
    model, weights = make_model(), Weights()
    history = model.fit(batches(1, 1, broken, 1), callbacks=[weights], verbose=0, shuffle=False)
    for before, after in zip(weights.after[1], weights.after[2], strict=True):
        np.testing.assert_array_equal(after, before)
    assert all(np.isfinite(value).all() for value in weights.after[3])
    assert (weights.after[3][0] != weights.after[2][0]).any()
    assert int(model.optimizer.left_out) == 1 and int(model.optimizer.iterations) == 3
    assert np.isfinite(history.history["loss"]).all()


def test_training_ends_after_so_many_of_them_in_a_row_with_the_batch_named():
    model = make_model()
    keeper = SimpleNamespace(batches=0)
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(keeper, "batches", keeper.batches + 1)
    )
    guard = FiniteGuard(
        2, lambda number: ((SOURCE, TARGET), LABELS), lambda ids: [str(ids.tolist())], keeper
    )
    with pytest.raises(InputError, match=r"2 updates in a row .*batch 5 .*\[\[7, 8, 3\]\]"):
        model.fit(
            batches(1, np.nan, 1, np.nan, np.nan, 1), callbacks=[count, guard], verbose=0,
            shuffle=False,
        )  # fmt: skip
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_float16_trains_on_through_a_source_row_of_padding():
    model = make_model("mixed_float16", loss_scale=2.0**15)
    source = np.array([[7, 8, 3], [0, 0, 0]], np.int32)
    data = tf.data.Dataset.from_tensors(((source, TARGET), LABELS)).repeat(60)
    model.fit(data, verbose=0, shuffle=False)
    first = model.evaluate(data.take(1), verbose=0, return_dict=True)["loss"]
    model.fit(data, verbose=0, shuffle=False)
    assert model.evaluate(data.take(1), verbose=0, return_dict=True)["loss"] < 0.9 * first
    # The scale may have been too high at first; padding breaks no update.
    assert int(model.optimizer.iterations) >= 115
