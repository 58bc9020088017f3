"""Averages of the weights in place of the weights."""

import keras


class Averages(keras.callbacks.Callback):
    """Puts the averages of the weights in their place while the model is validated, scored and
    kept as the best. Comes after the callbacks that look at them and before those that need the
    weights."""

    def on_test_begin(self, logs=None):
        self._exchange()

    def on_epoch_end(self, epoch, logs=None):
        self._exchange()

    def _exchange(self) -> None:
        optimizer = self.model.optimizer
        if not int(optimizer.iterations.numpy()):
            return  # Nothing was averaged yet.
        for weight, average in zip(self.model.trainable_weights, optimizer.averages, strict=True):
            value = weight.numpy()
            weight.assign(average.numpy())
            average.assign(value)
