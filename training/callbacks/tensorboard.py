"""What TensorBoard shows."""

import time

import keras
import tensorflow as tf

from training.callbacks.measure import Samples, memory_gigabytes


class TensorBoardLog(keras.callbacks.Callback):
    """Writes what each round measured as TensorBoard scalars over updates, and the sample
    translations as a table that grows by a line a round; loss, learning rate, gradient, padding,
    memory and speed every few updates.

    Args:
        writer: of the event files.
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
        "gradient_norm": "optimizer/gradient_norm",
        "left_out": "optimizer/updates_left_out",
        "padding": "speed/padding_share",
        "memory": "speed/memory_gigabytes",
        "tokens_per_second": "speed/tokens_per_second",
    }
    # Between rounds there is a point of some of them over so many updates.
    EVERY = 20

    def __init__(self, writer: tf.summary.SummaryWriter, samples: Samples):
        super().__init__()
        self.writer = writer
        self.samples = samples
        self._last = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._seen = self.model.seen.numpy()
        self._since = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        update = int(optimizer.iterations.numpy())
        if update % self.EVERY:
            return
        seen, now = self.model.seen.numpy(), time.perf_counter()
        loss, tokens, positions = seen - self._seen
        figures = {
            "loss": loss / max(tokens, 1),
            "learning_rate": float(optimizer.learning_rate),
            "gradient_norm": float(optimizer.gradient_norm.numpy()),
            "left_out": int(optimizer.left_out.numpy()),
            "padding": 1 - tokens / max(positions, 1),
            "memory": memory_gigabytes(),
            "tokens_per_second": tokens / (now - self._since),
        }
        self._seen, self._since = seen, now
        self._last = update
        self._write(update, figures)

    def on_epoch_end(self, epoch, logs=None):
        # A point of the last updates is there already, if they came out even.
        there = (
            ("loss", "learning_rate", "tokens_per_second") if logs["update"] == self._last else ()
        )
        figures = {name: logs[name] for name in self.TAGS if name in logs and name not in there}
        self._write(logs["update"], figures)
        with self.writer.as_default(step=logs["update"]):
            tf.summary.text("samples", _table(self.samples))
        self.writer.flush()

    def _write(self, update: int, figures: dict[str, float]) -> None:
        with self.writer.as_default(step=update):
            for name, value in figures.items():
                tf.summary.scalar(self.TAGS[name], value)


def _table(samples: Samples) -> str:
    """For each sentence how its translation changed, as Markdown."""
    lines = []
    for number, (source, reference) in enumerate(
        zip(samples.sources, samples.references, strict=True)
    ):
        lines += [f"| update | {samples.figure} | {_cell(source)} |", "|---|---|---|"]
        lines += [
            f"| {update} | {figure:.2f} | {_cell(translations[number])} |"
            for update, figure, translations in samples.history
        ]
        lines += [f"| reference | | {_cell(reference)} |", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
