"""Test translations of runs: made where they are missing, kept in the run folder, read again."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kformer.errors import InputError
from training.checkpoints import file_hash
from training.compare.child import run_module
from training.compare.experiment import slug
from training.compare.runs import Run, log_file


@dataclass(frozen=True)
class Translations:
    """What a run makes of its test text with one search.

    Args:
        texts: in the order of the text.
        seconds: how long it took.
        parameters: of the model.
        environment: where it was done: see `environment`, and the device.
    """

    texts: list[str]
    seconds: float
    parameters: int
    environment: dict[str, str]


def translate_run(run: Run, show: Callable[[str], None], locks=()) -> None:
    """Translates the test text of a finished run with each search that is not yet done.

    Args:
        run: what to translate with.
        show: called with each line that is printed.
        locks: see `run_module`.

    Raises:
        KeyboardInterrupt: it was stopped.
        CommandError: it failed.
    """
    missing = [
        {"name": _stem(name), "options": vars(search.parsed)}
        for name, search in run.variant.searches.items()
        if _record(run, name) is None
    ]
    if missing:
        words = ["training.compare.translate", str(run.folder.path), json.dumps(missing)]
        run_module(words, log_file(run), show, locks)


def read_translations(run: Run, search: str) -> Translations | None:
    """What `translate_run` left for the search of a name; None: nothing yet.

    Raises:
        InputError: there are not as many translations as sentences.
    """
    record = _record(run, search)
    if record is None:
        return None
    path = run.folder.path / "translations" / f"{_stem(search)}.txt"
    texts = path.read_text("utf-8").split("\n")[:-1]
    sentences = len(run.folder.pairs("test"))
    if len(texts) != sentences:
        raise InputError(
            f"{path}: has {len(texts)} lines for {sentences} test sentences. Remove it and its "
            ".json, and they are made again"
        )
    return Translations(texts, record["seconds"], record["parameters"], record["environment"])


def _stem(search: str) -> str:
    return slug(search or "test")


def _record(run: Run, search: str) -> dict[str, Any] | None:
    """What is known of translations that this model made with the options of this search."""
    about = run.folder.path / "translations" / f"{_stem(search)}.json"
    if not about.is_file():
        return None
    record = json.loads(about.read_text("utf-8"))
    same = record["options"] == vars(run.variant.searches[search].parsed) and record[
        "model"
    ] == file_hash(run.folder.best_model)
    return record if same else None
