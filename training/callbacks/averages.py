"""Averages of the weights in place of the weights."""

import contextlib
from collections.abc import Iterator

import keras


class Averages(keras.callbacks.Callback):
    """Puts the averages of the weights in their place while the model is validated, scored and
    kept as the best. Comes after the callbacks that look at them and before those that need the
    weights."""

    def on_test_begin(self, logs=None):
        exchange(self.model)

    def on_epoch_end(self, epoch, logs=None):
        exchange(self.model)


@contextlib.contextmanager
def averaged(model: keras.Model) -> Iterator[None]:
    """The model has the averages of its weights in a `with` statement, if there are any."""
    exchange(model)
    try:
        yield
    finally:
        exchange(model)


def exchange(model: keras.Model) -> None:
    """Exchanges the trained weights and their averages, if there are any."""
    optimizer = model.optimizer
    if not optimizer.averages or not int(optimizer.iterations.numpy()):
        return  # Nothing was averaged yet.
    for weight, average in zip(model.trainable_weights, optimizer.averages, strict=True):
        value = weight.numpy()
        weight.assign(average.numpy())
        average.assign(value)
