"""What happens beside the updates: progress, scores, TensorBoard, checkpoints, stopping in time.

A Keras epoch is one validation round here: `train.validate_every` updates. Callbacks that add to
`logs` come before those that read them; `round_callbacks` has them in that order.
"""

import json
import math
import sys
import time
from collections.abc import Sequence

import keras
import tensorflow as tf

from kformer.run_folder import RunFolder
from kformer.translator import Translator
from training.data.rows import Pair
from training.scoring import score

BEST = "val_bleu"


class Throughput(keras.callbacks.Callback):
    """Measures target tokens a second, padding not counted and validation left out.

    Adds `update`, `learning_rate` and the round's `tokens_per_second` to the logs; `average` is
    that of the whole run. The first update, which is traced and compiled, is not in either.
    """

    def __init__(self):
        super().__init__()
        self._traced = False
        self._all_tokens = self._all_seconds = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._started = self._ended = time.perf_counter()
        self._before = self._tokens = 0.0

    def on_train_batch_end(self, batch, logs=None):
        self._ended = time.perf_counter()
        if not self._traced:
            self._traced = True
            self._started, self._before = self._ended, float(self.model.token_loss.count)

    def on_test_begin(self, logs=None):
        # Validation resets the model's sums, this one among them.
        self._tokens = float(self.model.token_loss.count) - self._before

    def on_epoch_end(self, epoch, logs=None):
        seconds = self._ended - self._started
        self._all_tokens += self._tokens
        self._all_seconds += seconds
        logs["update"] = int(self.model.optimizer.iterations)
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)
        logs["tokens_per_second"] = self._tokens / seconds if seconds else 0.0

    @property
    def average(self) -> float:
        """Target tokens a second over all rounds."""
        return self._all_tokens / self._all_seconds if self._all_seconds else 0.0


class TranslationScores(keras.callbacks.Callback):
    """Translates the validation text after each round; adds `val_bleu` and `val_chrf` to the logs.

    Args:
        translator: of the model in training.
        pairs: the validation text.
        bleu_tokenize: sacreBLEU's tokenizer for BLEU.
    """

    def __init__(self, translator: Translator, pairs: Sequence[Pair], bleu_tokenize: str):
        super().__init__()
        self.translator = translator
        self.sources = [pair.source for pair in pairs]
        self.references = [pair.target for pair in pairs]
        self.bleu_tokenize = bleu_tokenize
        self.translations: list[str] = []

    def on_epoch_end(self, epoch, logs=None):
        self.translations = self.translator.translate(self.sources)
        scores = score(self.translations, self.references, self.bleu_tokenize)
        logs["val_bleu"], logs["val_chrf"] = scores.bleu, scores.chrf


class Samples(keras.callbacks.Callback):
    """Follows a few validation sentences: `latest` holds (source, translation, reference) of each
    after a round, and the run's samples.txt all of them since the start.

    Args:
        scores: what translates them.
        run: where the file lies.
        count: how many, spread over the validation text.
    """

    def __init__(self, scores: TranslationScores, run: RunFolder, count: int):
        super().__init__()
        self.scores = scores
        self.run = run
        total = len(scores.sources)
        count = min(count, total)
        self._rows = [index * total // count for index in range(count)]
        self.latest: list[tuple[str, str, str]] = []

    def on_epoch_end(self, epoch, logs=None):
        scores = self.scores
        self.latest = [
            (scores.sources[row], scores.translations[row], scores.references[row])
            for row in self._rows
        ]
        with self.run.samples.open("a", encoding="utf-8") as file:
            file.write(f"update {logs['update']}  BLEU {logs['val_bleu']:.2f}\n")
            for source, translation, reference in self.latest:
                file.write(f"  source       {source}\n")
                file.write(f"  translation  {translation}\n")
                file.write(f"  reference    {reference}\n")


class Progress(keras.callbacks.Callback):
    """Shows how training goes: a bar on a terminal, a line a minute elsewhere, and after each
    round its figures and sample translations.

    Args:
        updates: length of training.
        samples: the translations to show.
        checkpoints: what knows whether a round was the best.
    """

    def __init__(self, updates: int, samples: Samples, checkpoints: "Checkpoints"):
        super().__init__()
        self.updates = updates
        self.samples = samples
        self.checkpoints = checkpoints
        self._terminal = sys.stdout.isatty()
        self._pause = 0.2 if self._terminal else 60.0

    def on_train_begin(self, logs=None):
        self._began = time.perf_counter()
        self._first = int(self.model.optimizer.iterations)
        self._shown = self._began

    def on_epoch_begin(self, epoch, logs=None):
        self._round_began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if now - self._shown < self._pause:
            return
        self._shown = now
        update = int(self.model.optimizer.iterations)
        left = (now - self._began) / max(update - self._first, 1) * (self.updates - update)
        speed = float(self.model.token_loss.count) / (now - self._round_began)
        filled = 30 * update // self.updates
        line = (
            f"{'━' * filled}{'─' * (30 - filled)} {update}/{self.updates} updates  "
            f"loss {logs['loss']:.3f}  {speed:,.0f} tokens/s  {clock(left)} left"
        )
        print(f"\r\x1b[K{line}" if self._terminal else line, end="" if self._terminal else "\n")
        sys.stdout.flush()

    def on_epoch_end(self, epoch, logs=None):
        mark = " (best)" if self.checkpoints.improved else ""
        print(
            f"{chr(13) + chr(27) + '[K' if self._terminal else ''}"
            f"update {logs['update']}/{self.updates}  {clock(time.perf_counter() - self._began)}  "
            f"train loss {logs['loss']:.3f}  validation loss {logs['val_loss']:.3f}, perplexity "
            f"{logs['val_perplexity']:.2f}, accuracy {100 * logs['val_accuracy']:.1f}%, BLEU "
            f"{logs['val_bleu']:.2f}{mark}  {logs['tokens_per_second']:,.0f} tokens/s"
        )
        for source, translation, reference in self.samples.latest:
            print(f"    {source}\n    -> {translation}\n    == {reference}")
        sys.stdout.flush()


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
        self._loss = self._tokens = 0.0
        self._since = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        update = int(self.model.optimizer.iterations)
        if update % self.EVERY:
            return
        loss, tokens = float(self.model.token_loss.total), float(self.model.token_loss.count)
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

    def on_train_end(self, logs=None):
        self._writer.close()


class MetricsFile(keras.callbacks.Callback):
    """Appends each round's figures to the run's metrics.jsonl.

    Args:
        run: where the file lies.
    """

    def __init__(self, run: RunFolder):
        super().__init__()
        self.run = run
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        # JSON has no NaN and no infinity.
        figures = {
            name: round(float(value), 6) if math.isfinite(value) else None
            for name, value in logs.items()
        }
        figures["update"] = int(figures["update"])
        figures["seconds"] = round(time.perf_counter() - self._began, 1)
        with self.run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")


class Checkpoints(keras.callbacks.Callback):
    """Saves the model after each round, and once more as the best if its BLEU is; `improved` says
    whether the last round's was.

    Args:
        run: where the models go.
    """

    def __init__(self, run: RunFolder):
        super().__init__()
        self.run = run
        self.best = (-1.0, -math.inf)
        self.improved = False

    def on_epoch_end(self, epoch, logs=None):
        self.improved = False
        if not math.isfinite(logs["loss"]):
            return
        self.run.save_model(self.model, self.run.last_model)
        # A small text may score the same, or nothing, round after round: then the loss decides.
        reached = (logs[BEST], -logs["val_loss"])
        if reached > self.best:
            self.best = reached
            self.improved = True
            self.run.save_model(self.model, self.run.best_model)

    def save(self):
        """Saves the model between rounds; as the best too if there is none yet."""
        self.run.save_model(self.model, self.run.last_model)
        if not self.run.best_model.exists():
            self.run.save_model(self.model, self.run.best_model)


class UpdateLimit(keras.callbacks.Callback):
    """Ends training, after a last validation, at a number of updates.

    Args:
        updates: of the optimizer, which skips steps that overflow in float16.
    """

    def __init__(self, updates: int):
        super().__init__()
        self.updates = updates

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) >= self.updates:
            self.model.stop_training = True


class TimeLimit(keras.callbacks.Callback):
    """Ends training early enough that the last validation and the test are done in time.

    Args:
        seconds: wall time from `began` to the end of the run.
        began: when the run started, by `time.perf_counter`.
        scores: what translates the validation text after each round.
        test_sources: what is translated at the end.
    """

    # Texts translated before the first round to learn how long a validation takes.
    TRIED = 64

    def __init__(
        self,
        seconds: float,
        began: float,
        scores: TranslationScores,
        test_sources: Sequence[str],
    ):
        super().__init__()
        self.deadline = began + seconds
        self.scores = scores
        # Validation and test by the work they are; a tenth for loading the best model.
        share = _characters(test_sources) / max(_characters(scores.sources), 1)
        self._closings = 1.1 + share
        self._validation = 0.0

    def on_train_begin(self, logs=None):
        # An untrained model translates up to the limit of length: longer than it ever will.
        spread = self.scores.sources[:: max(1, len(self.scores.sources) // self.TRIED)]
        self.scores.translator.translate(spread)  # Traces, which happens once.
        began = time.perf_counter()
        self.scores.translator.translate(spread)
        each = (time.perf_counter() - began) / len(spread)
        self._validation = each * len(self.scores.sources)

    def on_test_begin(self, logs=None):
        self._validation_began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self._validation = time.perf_counter() - self._validation_began

    def on_train_batch_end(self, batch, logs=None):
        if time.perf_counter() + self._closings * self._validation > self.deadline:
            self.model.stop_training = True


def _characters(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def clock(seconds: float) -> str:
    """Seconds as 1:05 or 2:03:09."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
