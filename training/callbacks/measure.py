"""What is measured beside the updates: speed, and translations of the validation text."""

import resource
import sys
import time
from collections.abc import Sequence

import keras

from kformer.run_folder import RunFolder
from kformer.translator import Translator
from training.data.rows import Pair
from training.scoring import score


def tokens_seen(model: keras.Model) -> float:
    """Target tokens trained on so far, padding not counted."""
    return float(model.seen.numpy()[1])


def memory_gigabytes() -> float:
    """The most main memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


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
        self._before = tokens_seen(self.model)

    def on_train_batch_end(self, batch, logs=None):
        self._ended = time.perf_counter()
        if not self._traced:
            self._traced = True
            self._started, self._before = self._ended, tokens_seen(self.model)

    def on_test_begin(self, logs=None):
        self._tokens = tokens_seen(self.model) - self._before

    def on_epoch_end(self, epoch, logs=None):
        seconds = self._ended - self._started
        self._all_tokens += self._tokens
        self._all_seconds += seconds
        logs["update"] = int(self.model.optimizer.iterations.numpy())
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)
        logs["tokens_per_second"] = self._tokens / seconds if seconds else 0.0

    def state(self) -> dict[str, float]:
        return {"tokens": self._all_tokens, "seconds": self._all_seconds}

    def restore(self, state: dict[str, float]) -> None:
        self._all_tokens, self._all_seconds = state["tokens"], state["seconds"]

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
    after a round, `history` the update, BLEU and translations of every round, and the run's
    samples.txt all of it.

    Args:
        scores: what translates them.
        run: where the file lies.
        count: how many, spread over the validation text.
    """

    figure = "BLEU"

    def __init__(self, scores: TranslationScores, run: RunFolder, count: int):
        super().__init__()
        self.run = run
        self._scores = scores
        total = len(scores.sources)
        count = min(count, total)
        self._rows = [index * total // count for index in range(count)]
        self.sources = [scores.sources[row] for row in self._rows]
        self.references = [scores.references[row] for row in self._rows]
        self.latest: list[tuple[str, str, str]] = []
        self.history: list[tuple[int, float, list[str]]] = []

    def on_epoch_end(self, epoch, logs=None):
        translations = [self._scores.translations[row] for row in self._rows]
        self.latest = list(zip(self.sources, translations, self.references, strict=True))
        self.history.append((logs["update"], logs["val_bleu"], translations))
        with self.run.samples.open("a", encoding="utf-8") as file:
            file.write(f"update {logs['update']}  BLEU {logs['val_bleu']:.2f}\n")
            for source, translation, reference in self.latest:
                file.write(f"  source       {source}\n")
                file.write(f"  translation  {translation}\n")
                file.write(f"  reference    {reference}\n")

    def state(self) -> dict[str, list]:
        return {"history": self.history}

    def restore(self, state: dict[str, list]) -> None:
        self.history = [tuple(round_) for round_ in state["history"]]
