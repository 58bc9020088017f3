import json
from dataclasses import replace

import pytest

from training.checkpoints import file_hash
from training.compare import runs as runs_module
from training.compare import translations as translations_module
from training.compare.child import CommandError
from training.compare.experiment import parse_words, read_experiment
from training.compare.runs import plan
from training.config import to_yaml

PAIRS = [
    ("the cat is here", "die Katze ist hier"),
    ("a small house by the sea, which is red and old", "ein kleines Haus am Meer, rot und alt"),
    ("the red house is old and the new one is blue", "das rote Haus ist alt, das neue ist blau"),
    ("where is the car of my friend today", "wo ist heute das Auto meines Freundes"),
]
TEXT = """
title: Widths
question: Does it matter?
base: tiny
settings: {train.updates: 4, train.validate_every: 2, train.warmup_updates: 1}
seeds: [1, 2]
variants:
  wide: {}
  narrow: {model.d_model: 16}
"""


@pytest.fixture
def read(tmp_path):
    """Reads an experiment that is given as text."""

    def read(text, /, **given):
        path = tmp_path / "widths.yaml"
        path.write_text(text, "utf-8")
        return read_experiment(path, given)

    return read


class Commands:
    """Stands for the processes: does at once what they leave behind, and knows what was asked."""

    def __init__(self):
        self.trained = []
        self.translated = []
        self.overwritten = []
        self.stop_at = self.fail_at = None
        self.pairs = PAIRS

    def __call__(self, words, log, show, locks=()):
        if words[0] == "training.run":
            self._train(words[1:])
        else:
            self._translate(*words[1:])

    def _train(self, words):
        at = words.index("--run")
        folder = runs_module.RunFolder(words[at + 1])
        self.trained.append(folder.path.name)
        if folder.path.name == self.fail_at:
            raise CommandError("training.run ended with status 2: diverged")
        if "--overwrite" in words:
            self.overwritten.append(folder.path.name)
        config = parse_words(tuple(words[:at]))
        train = replace(config.train, precision="float32")
        folder.data.mkdir(parents=True, exist_ok=True)
        folder.config.write_text(to_yaml(replace(config, train=train)), "utf-8")
        rows = "".join(f"{source}\t{target}\n" for source, target in self.pairs)
        folder.text("test").write_text(rows, "utf-8")
        if folder.path.name == self.stop_at:
            self.stop_at = None
            checkpoint(folder, 2)
            raise KeyboardInterrupt
        checkpoint(folder, config.train.updates)
        folder.best_model.parent.mkdir(exist_ok=True)
        folder.best_model.write_bytes(b"model")
        folder.scores.write_text("{}")
        rounds = [
            {"update": update, "val_bleu": 2.0 * update, "val_chrf": 40.0,
             "val_loss": 3 - update / 4, "loss": 3.0,
             "val_perplexity": 10.0 * config.train.seed + update,
             "tokens_per_second": 1000.0 * update, "seconds": 30.0 * update}
            for update in (2, 4)
        ]  # fmt: skip
        folder.metrics.write_text("".join(f"{json.dumps(figures)}\n" for figures in rounds))

    def _translate(self, path, searches):
        folder = runs_module.RunFolder(path)
        (folder.path / "translations").mkdir(exist_ok=True)
        for search in json.loads(searches):
            self.translated.append((folder.path.name, search["name"]))
            # The better, the narrower and the wider the beam; seeds differ, too.
            kept = 2 + ("narrow" in folder.path.name) + (search["options"]["beam_size"] > 1)
            texts = [
                target if number < kept else target[: 12 + int(folder.path.name[-1])]
                for number, (_, target) in enumerate(self.pairs)
            ]
            record = {
                "options": search["options"],
                "model": file_hash(folder.best_model),
                "seconds": 1.5,
                "parameters": 1234,
                "environment": {"device": "CPU, 2 cores"},
            }
            base = folder.path / "translations" / search["name"]
            base.with_suffix(".txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
            base.with_suffix(".json").write_text(json.dumps(record))


def checkpoint(folder, update):
    path = folder.checkpoints / f"batch-{update:08}" / "state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"update": update}))


@pytest.fixture
def commands(monkeypatch):
    commands = Commands()
    monkeypatch.setattr(runs_module, "run_module", commands)
    monkeypatch.setattr(translations_module, "run_module", commands)
    return commands


@pytest.fixture
def planned(read, tmp_path):
    """The experiment of `TEXT`, or another, and its runs."""

    def planned(text=TEXT, folder="out", **given):
        experiment = read(text, **given)
        return experiment, plan(experiment, tmp_path / folder)

    return planned
