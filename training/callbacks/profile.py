"""A record of some updates for TensorBoard's profiler."""

import keras
import tensorflow as tf

from kformer.run_folder import RunFolder


class Profile(keras.callbacks.Callback):
    """Records what devices and host do during a few updates.

    TensorBoard shows it with the package tensorboard-plugin-profile.

    Args:
        run: where the record goes, beside the event files.
        updates: how many are recorded.
    """

    # Batches before: tracing and the first of several threads are not what an update costs.
    SKIPPED = 10

    def __init__(self, run: RunFolder, updates: int):
        super().__init__()
        self.run = run
        self.updates = updates
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self._batches += 1
        if self._batches == self.SKIPPED:
            tf.profiler.experimental.start(str(self.run.logs))
        elif self._batches == self.SKIPPED + self.updates:
            tf.profiler.experimental.stop()

    def close(self) -> None:
        """Ends a record that training did not live to see the end of."""
        if self.SKIPPED <= self._batches < self.SKIPPED + self.updates:
            tf.profiler.experimental.stop()
            self._batches = self.SKIPPED + self.updates
