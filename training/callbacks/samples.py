"""A few validation sentences, and what the model makes of them round after round."""

from collections.abc import Sequence

import keras

from kformer.generation import Generator
from kformer.run_folder import RunFolder
from training.callbacks.measure import TranslationScores


class Samples(keras.callbacks.Callback):
    """Follows a few sentences: `latest` holds (what the model is given, what it writes, what was to
    be written) of each after a round, `history` the update, a figure and the texts of every round,
    and the run's samples.txt all of it.

    Args:
        run: where the file lies.
        count: how many, spread over the validation text.
        references: the validation text, what is to be written.

    Attributes:
        figure: name of the figure that says how good the model is.
        sources: what the model is given.
        references: what is to be written.
    """

    figure: str
    _key: str  # of the figure in the logs
    _labels: tuple[str, str, str]  # of given, written and to be written, in the file

    def __init__(self, run: RunFolder, count: int, references: Sequence[str]):
        super().__init__()
        self.run = run
        count = min(count, len(references))
        self._rows = [index * len(references) // count for index in range(count)]
        self.references = [references[row] for row in self._rows]
        self.sources: list[str] = []
        self.latest: list[tuple[str, str, str]] = []
        self.history: list[tuple[int, float, list[str]]] = []

    def _written(self) -> list[str]:
        """What the model writes now."""
        raise NotImplementedError

    def on_epoch_end(self, epoch, logs=None):
        written, value = self._written(), logs[self._key]
        self.latest = list(zip(self.sources, written, self.references, strict=True))
        self.history.append((logs["update"], value, written))
        width = max(map(len, self._labels)) + 2
        with self.run.samples.open("a", encoding="utf-8") as file:
            file.write(f"update {logs['update']}  {self.figure} {value:.2f}\n")
            for texts in self.latest:
                for label, text in zip(self._labels, texts, strict=True):
                    file.write(f"  {label:{width}}{text}\n")

    def state(self) -> dict[str, list]:
        return {"sources": self.sources, "history": self.history}

    def restore(self, state: dict[str, list]) -> None:
        # Other sentences than before have no history.
        if state["sources"] == self.sources:
            self.history = [tuple(round_) for round_ in state["history"]]


class Translations(Samples):
    """How sentences are translated.

    Args:
        scores: what translates the validation text.
        run, count: see `Samples`.
    """

    figure, _key = "BLEU", "val_bleu"
    _labels = ("source", "translation", "reference")

    def __init__(self, scores: TranslationScores, run: RunFolder, count: int):
        super().__init__(run, count, scores.references)
        self._scores = scores
        self.sources = [scores.sources[row] for row in self._rows]

    def _written(self):
        return [self._scores.translations[row] for row in self._rows]


class Continuations(Samples):
    """How a model of lines of one language goes on with the first halves of some.

    Args:
        generator: of the model in training.
        lines: the validation text.
        run, count: see `Samples`.
    """

    figure, _key = "perplexity", "val_perplexity"
    _labels = ("beginning", "continued", "line")

    def __init__(self, generator: Generator, lines: Sequence[str], run: RunFolder, count: int):
        super().__init__(run, count, lines)
        self._generator = generator
        self.sources = [_first_half(line) for line in self.references]

    def _written(self):
        return [hypotheses[0].text for hypotheses in self._generator.generate(self.sources)]


def _first_half(line: str) -> str:
    """The first half of a line's words, rounded down; of a single word nothing."""
    words = line.split(" ")
    return " ".join(words[: len(words) // 2])
