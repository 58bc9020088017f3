"""What TensorBoard shows."""

import time

import keras
import tensorflow as tf

from kformer.run_folder import RunFolder
from training.callbacks.measure import Samples


class TensorBoardLog(keras.callbacks.Callback):
    """Writes what each round measured as TensorBoard scalars over updates, and the sample
    translations as a table; loss, learning rate and speed every few updates.

    Args:
        run: where the event files go.
        samples: the translations to show.
    """

    TAGS = {
        "loss": "train/loss",
        "accuracy": "train/accuracy",
        "perplexity": "train/perplexity",
        "val_loss": "validation/loss",
        "val_accuracy": "validation/accuracy",
        "val_perplexity": "validation/perplexity",
        "val_bleu": "validation/BLEU",
        "val_chrf": "validation/chrF",
        "learning_rate": "optimizer/learning_rate",
        "tokens_per_second": "speed/tokens_per_second",
    }
    # Written between rounds too, each time over so many updates.
    OFTEN = ("loss", "learning_rate", "tokens_per_second")
    EVERY = 20

    def __init__(self, run: RunFolder, samples: Samples):
        super().__init__()
        self.samples = samples
        self._writer = tf.summary.create_file_writer(str(run.logs))

    def on_epoch_begin(self, epoch, logs=None):
        self._loss, self._tokens = self.model.seen.numpy()
        self._since = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        update = int(self.model.optimizer.iterations.numpy())
        if update % self.EVERY:
            return
        loss, tokens = self.model.seen.numpy()
        now = time.perf_counter()
        figures = {
            "loss": (loss - self._loss) / max(tokens - self._tokens, 1),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "tokens_per_second": (tokens - self._tokens) / (now - self._since),
        }
        self._loss, self._tokens, self._since = loss, tokens, now
        self._write(update, figures)

    def on_epoch_end(self, epoch, logs=None):
        often = () if logs["update"] % self.EVERY == 0 else self.OFTEN
        figures = {
            name: logs[name] for name in self.TAGS if name in often or name not in self.OFTEN
        }
        self._write(logs["update"], figures)
        with self._writer.as_default(step=logs["update"]):
            rows = ["| source | translation | reference |", "|---|---|---|"]
            rows += [
                "| " + " | ".join(text.replace("|", "\\|") for text in sample) + " |"
                for sample in self.samples.latest
            ]
            tf.summary.text("samples", "\n".join(rows))
        self._writer.flush()

    def _write(self, update: int, figures: dict[str, float]) -> None:
        with self._writer.as_default(step=update):
            for name, value in figures.items():
                tf.summary.scalar(self.TAGS[name], value)

    def close(self) -> None:
        """Writes what is not written yet."""
        self._writer.close()
