"""What is shown of a model of lines of one language: how it goes on with some."""

import keras

from kformer.generation import Generator
from kformer.run_folder import RunFolder


class Continuations(keras.callbacks.Callback):
    """Follows a few validation lines, as `Samples` does translations: `latest` holds (first half,
    how the model goes on with it, the line) of each after a round, `history` the update, perplexity
    and texts of every round, and the run's samples.txt all of it.

    Args:
        generator: of the model in training.
        lines: the validation text.
        run: where the file lies.
        count: how many, spread over the validation text.
    """

    figure = "perplexity"

    def __init__(self, generator: Generator, lines: list[str], run: RunFolder, count: int):
        super().__init__()
        self.generator = generator
        self.run = run
        count = min(count, len(lines))
        self.references = [lines[index * len(lines) // count] for index in range(count)]
        self.sources = [_first_half(line) for line in self.references]
        self.latest: list[tuple[str, str, str]] = []
        self.history: list[tuple[int, float, list[str]]] = []

    def on_epoch_end(self, epoch, logs=None):
        found = [hypotheses[0].text for hypotheses in self.generator.generate(self.sources)]
        self.latest = list(zip(self.sources, found, self.references, strict=True))
        self.history.append((logs["update"], logs["val_perplexity"], found))
        with self.run.samples.open("a", encoding="utf-8") as file:
            file.write(f"update {logs['update']}  perplexity {logs['val_perplexity']:.2f}\n")
            for beginning, continued, line in self.latest:
                file.write(f"  beginning    {beginning}\n")
                file.write(f"  continued    {continued}\n")
                file.write(f"  line         {line}\n")

    def state(self) -> dict[str, list]:
        return {"history": self.history}

    def restore(self, state: dict[str, list]) -> None:
        self.history = [tuple(round_) for round_ in state["history"]]


def _first_half(line: str) -> str:
    """The first half of a line's words, rounded down; of a single word nothing."""
    words = line.split(" ")
    return " ".join(words[: len(words) // 2])
