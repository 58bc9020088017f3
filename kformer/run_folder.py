"""A run folder: all that a training run leaves behind, and all that is needed to use it."""

import json
import os
import re
import secrets
import zipfile
from pathlib import Path

import keras

import kformer.models  # noqa: F401  (registers the classes that a saved model names)
from kformer.errors import InputError
from kformer.models.base import SequenceModel
from kformer.saved_graph import DESCRIPTION
from kformer.text import Tokenizers


class RunFolder:
    """Where everything of a run lies. Nothing in it names a place outside, so it can be moved.

        config.yaml              the run's configuration, every key resolved
        tokenizer/               the vocabularies
        best/model.keras         the model of the best validation so far
        checkpoints/             what training goes on from if it was stopped
        data/                    the validation and test text, and what was made of the corpus
        logs/                    TensorBoard's event files
        metrics.jsonl            one line of figures each validation
        curves.png               the same as a picture, once it is done, if Matplotlib is installed
        samples.txt              translations of a few validation sentences, each validation
        scores.json              the scores of the best model on the test set

    Args:
        path: the folder.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.tokenizer = self.path / "tokenizer"
        self.best_model = self.path / "best" / "model.keras"
        self.checkpoints = self.path / "checkpoints"
        self.data = self.path / "data"
        self.corpus_report = self.data / "report.json"
        self.tokens_meta = self.data / "tokens.json"
        self.logs = self.path / "logs"
        self.metrics = self.path / "metrics.jsonl"
        self.curves = self.path / "curves.png"
        self.samples = self.path / "samples.txt"
        self.scores = self.path / "scores.json"

    def text(self, part: str) -> Path:
        """The pairs of the validation ("valid") or test ("test") part, as TSV."""
        return self.data / f"{part}.tsv"

    def pairs(self, part: str) -> list[tuple[str, str]]:
        """The pairs of the validation or test part: (source, target)."""
        rows = self.text(part).read_text("utf-8").split("\n")
        return [tuple(row.split("\t")) for row in rows if row]

    @property
    def of_lines(self) -> bool:
        """Whether it was trained on lines of one language: its pairs have no source."""
        # What is made of the corpus is not needed to translate, and may have been left behind.
        if not self.tokens_meta.is_file():
            if re.search(r"^  kind: language_model$", self.config.read_text("utf-8"), re.MULTILINE):
                raise InputError(
                    f"{self.tokens_meta}: is missing, and says whether this language model is of "
                    "lines or of pairs. Copy it from where the run was trained."
                )
            return False
        try:
            return json.loads(self.tokens_meta.read_text("utf-8")).get("source_tokens") == 0
        except (ValueError, AttributeError) as error:
            raise InputError(f"{self.tokens_meta}: is damaged ({error})") from error

    def refuse_lines(self) -> None:
        """Says that a model of lines of one language translates nothing.

        Raises:
            InputError: it is one.
        """
        if self.of_lines:
            raise InputError(
                f"{self.path}: was trained on lines of one language and translates nothing. Let it "
                f"write: python -m kformer.generate {self.path}"
            )

    @classmethod
    def open(cls, path: str | os.PathLike) -> "RunFolder":
        """The folder of a run that has a model to use.

        Raises:
            InputError: there is no such folder, it is an export, or something that a run writes is
                missing.
        """
        run = cls(path)
        if not run.path.is_dir():
            raise InputError(f"{run.path}: no such run folder. Train one: python -m training.run")
        if (run.path / DESCRIPTION).exists() or any(run.path.glob(f"[0-9]*/{DESCRIPTION}")):
            raise InputError(f"{run.path}: is an export. Give the run folder that it was made of.")
        for needed in (run.config, run.tokenizer, run.best_model):
            if not needed.exists():
                raise InputError(
                    f"{run.path}: not a complete run folder, {needed.relative_to(run.path)} is "
                    "missing. Give the folder of a run that got as far as its first validation."
                )
        return run

    def load_tokenizers(self) -> Tokenizers:
        """The run's vocabularies."""
        return Tokenizers.load(self.tokenizer)

    def load_model(self, path: Path | None = None, compile: bool = False) -> SequenceModel:
        """The model in `path`, by default the best one.

        Args:
            path: a file that `save_model` wrote; default `best_model`.
            compile: whether to restore loss, optimizer and schedule too.

        Raises:
            InputError: the file is missing or damaged.
        """
        path = path or self.best_model
        if not path.is_file():
            raise InputError(f"{path}: no such model file")
        try:
            model = keras.models.load_model(path, compile=compile)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InputError(f"{path}: not a readable kformer model ({reason})") from error
        if not isinstance(model, SequenceModel):
            raise InputError(f"{path}: holds no kformer model but a {type(model).__name__}")
        return model

    def load(self, dtype: str = "float32") -> tuple[SequenceModel, Tokenizers]:
        """The best model and the vocabularies, checked against each other.

        A model trained in mixed precision keeps float32 weights. In float32 its translations do
        not depend on what a sentence is batched with, nor on the hardware it was trained on.

        Args:
            dtype: Keras' dtype policy of the model.

        Raises:
            InputError: a file is missing or damaged, or their sizes differ.
        """
        tokenizers = self.load_tokenizers()
        saved = self.load_model()
        model = type(saved).from_config({**saved.get_config(), "dtype": dtype})
        model.set_weights(saved.get_weights())
        check_vocabulary_sizes(model, tokenizers, self.tokenizer)
        return model, tokenizers

    def save_model(self, model: SequenceModel, path: Path) -> None:
        """Writes model, optimizer and schedule to `path`, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{secrets.token_hex(4)}.partial.keras")
        try:
            model.save(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def check_vocabulary_sizes(model: SequenceModel, tokenizers: Tokenizers, where: Path) -> None:
    """Refuses a tokenizer that speaks of other ids than the model's embeddings hold."""
    sides = {
        "source": (tokenizers.source.vocab_size, model.source_vocab_size),
        "target": (tokenizers.target.vocab_size, model.target_vocab_size),
    }
    for side, (pieces, rows) in sides.items():
        if pieces != rows:
            raise InputError(
                f"{where}: the {side} vocabulary has {pieces} pieces, but the model's {side} "
                f"embedding has {rows} rows. Use the vocabulary that the model was trained with."
            )
