"""What the terminal shows."""

import sys
import time

import keras

from training.callbacks.best import Best
from training.callbacks.measure import tokens_seen
from training.callbacks.samples import Samples


class Progress(keras.callbacks.Callback):
    """Shows how training goes: a bar on a terminal, a line a minute elsewhere, and after each
    round its figures and sample translations.

    Args:
        updates: length of training.
        samples: the translations to show.
        best: what knows whether a round was the best.
    """

    def __init__(self, updates: int, samples: Samples, best: Best):
        super().__init__()
        self.updates = updates
        self.samples = samples
        self.best = best
        self._began: float | None = None
        self._terminal = sys.stdout.isatty()
        self._pause = 0.2 if self._terminal else 60.0

    def on_train_begin(self, logs=None):
        if self._began is None:  # A training that goes on within a round fits twice.
            self._began = time.perf_counter()
            self._first = int(self.model.optimizer.iterations.numpy())
        self._shown = self._began

    def on_epoch_begin(self, epoch, logs=None):
        self._round_began = time.perf_counter()
        self._before = tokens_seen(self.model)

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if now - self._shown < self._pause:
            return
        self._shown = now
        update = int(self.model.optimizer.iterations.numpy())
        left = (now - self._began) / max(update - self._first, 1) * (self.updates - update)
        speed = (tokens_seen(self.model) - self._before) / (now - self._round_began)
        filled = 30 * update // self.updates
        line = (
            f"{'━' * filled}{'─' * (30 - filled)} {update}/{self.updates} updates  "
            f"loss {logs['loss']:.3f}  {speed:,.0f} tokens/s  {clock(left)} left"
        )
        print(f"\r\x1b[K{line}" if self._terminal else line, end="" if self._terminal else "\n")
        sys.stdout.flush()

    def on_epoch_end(self, epoch, logs=None):
        mark = " (best)" if self.best.improved else ""
        bleu = f", BLEU {logs['val_bleu']:.2f}" if "val_bleu" in logs else ""
        print(
            f"{chr(13) + chr(27) + '[K' if self._terminal else ''}"
            f"update {logs['update']}/{self.updates}  {clock(time.perf_counter() - self._began)}  "
            f"train loss {logs['loss']:.3f}  validation loss {logs['val_loss']:.3f}, perplexity "
            f"{logs['val_perplexity']:.2f}, accuracy {100 * logs['val_accuracy']:.1f}%{bleu}"
            f"{mark}  {logs['tokens_per_second']:,.0f} tokens/s"
        )
        for source, translation, reference in self.samples.latest:
            print(f"    {source}\n    -> {translation}\n    == {reference}")
        sys.stdout.flush()


def clock(seconds: float) -> str:
    """Seconds as 1:05 or 2:03:09."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
