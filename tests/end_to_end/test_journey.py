"""From a file of pairs to translations, by the command lines, as a user would."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from kformer.translator import Translator
from training.config import load_config

ROOT = Path(__file__).resolve().parents[2]

COLOURS = {"red": "rot", "green": "grün", "blue": "blau", "white": "weiß", "black": "schwarz"}
SIZES = {"big": "groß", "small": "klein", "new": "neu", "old": "alt"}
THINGS = {"house": "haus", "car": "auto", "book": "buch", "fish": "fisch", "ship": "schiff"}
PLACES = {"here": "hier", "there": "dort", "today": "heute"}
PAIRS = [
    (f"the {colour} {thing} is {size} {place}", f"{COLOURS[colour]}: {THINGS[thing]}, "
     f"{SIZES[size]} {PLACES[place]}")
    for colour in COLOURS for size in SIZES for thing in THINGS for place in PLACES
]  # fmt: skip


def command(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        **options,
    )


def finish(process, timeout=180):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journey")
    text = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    (folder / "pairs.tsv").write_text(text, "utf-8")
    return folder


def training(folder, run, **train):
    """The words of a small run, made in `folder`."""
    train = {"validate_every": 10, "warmup_updates": 2, "batch_tokens": 256, **train}
    return [
        "training.run", "tiny", "--run", run, "--data.train=pairs.tsv", "--model.d_model=32",
        "--tokenizer.vocab_size=500", "--scoring.samples=2",
        *(f"--train.{key}={value}" for key, value in train.items()),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def runs(folder):
    """What two trainings ended with, side by side: each alone would leave processors idle."""
    short = command(*training(folder, "run", updates=20, profile_updates=2), cwd=folder)
    try:
        return {"interrupted": interrupt_after_a_round(folder), "run": finish(short)}
    finally:
        short.kill()


def interrupt_after_a_round(folder):
    run = folder / "interrupted"
    run.mkdir()
    (run / "config.yaml").write_text("")
    (run / "samples.txt").write_text("of the old run\n")
    words = training(folder, "interrupted", updates=100_000, validate_every=5)
    # A shell's background jobs, and so their children, ignore interrupts unless told otherwise.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = command(*words, "--overwrite", cwd=folder, preexec_fn=listen)
    metrics, deadline = run / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text()) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    return finish(process)


@pytest.fixture(scope="module")
def trained(runs, folder):
    """A run of twenty updates: its folder, and what it printed."""
    status, out, err = runs["run"]
    assert status == 0, err
    return folder / "run", out


@pytest.fixture(scope="module")
def interrupted(runs, folder):
    """A long run, in place of an older one, that was interrupted after its first round."""
    return folder / "interrupted", *runs["interrupted"]


@pytest.fixture(scope="module")
def using(trained, folder):
    """Processes that use the run, started together."""
    (folder / "elsewhere").mkdir()
    shutil.copytree(trained[0], folder / "elsewhere" / "moved")
    (folder / "input.txt").write_text(f"{PAIRS[0][0]}\n\nthe blue fish", "utf-8")
    output = folder / "translations.txt"
    return {
        "evaluate": command(
            "training.evaluate", "moved", "--output", output, cwd=folder / "elsewhere"
        ),
        "translate": command("kformer.translate", "run", "input.txt", cwd=folder),
    }


def test_training_tells_what_it_trains_on_and_how_it_goes(trained):
    _, out = trained
    assert re.search(r"train +2\d\d pairs, [\d,]+ source and [\d,]+ target tokens", out)
    assert re.search(r"vocabulary +\d+ joint pieces, unigram", out)
    assert re.search(r"model +[\d,]+ parameters, (float32|mixed_bfloat16)", out)
    for update in (10, 20):
        assert re.search(rf"update {update}/20 .*BLEU [\d.]+.* [\d,]+ tokens/s", out)
    assert re.search(r"BLEU [\d.]+  \(nrefs:1\|case:mixed\|.*tok:13a\|.*version:", out)


def test_the_counts_of_the_parts_add_up_to_the_corpus(trained):
    _, out = trained
    (kept,) = re.findall(r"^corpus .* (\d+) pairs kept$", out, re.MULTILINE)
    (train,) = re.findall(r"^train +(\d+) pairs", out, re.MULTILINE)
    ((valid, test),) = re.findall(
        r"^held out +(\d+) pairs for validation, (\d+) for the test$", out, re.MULTILINE
    )
    assert int(train) + int(valid) + int(test) == int(kept) == len(PAIRS)


def test_a_run_folder_holds_all_that_a_run_leaves(trained):
    run, _ = trained
    for name in (
        "config.yaml", "tokenizer/joint.model", "best/model.keras",
        "data/valid.tsv", "data/test.tsv", "metrics.jsonl", "samples.txt", "scores.json",
    ):  # fmt: skip
        assert (run / name).stat().st_size > 0, name
    assert list((run / "logs").glob("events.out.tfevents.*"))
    assert not list(run.parent.rglob("*.partial*"))


def test_the_configuration_of_a_run_is_resolved(trained):
    config = load_config(trained[0] / "config.yaml")
    assert (config.train.updates, config.tokenizer.vocab_size, config.model.d_ff) == (20, 500, 128)


def test_metrics_have_a_line_a_round(trained):
    rounds = [json.loads(line) for line in (trained[0] / "metrics.jsonl").open()]
    assert [figures["update"] for figures in rounds] == [10, 20]
    for key in ("loss", "val_loss", "val_perplexity", "val_bleu", "val_chrf", "tokens_per_second"):
        assert all(figures[key] >= 0 for figures in rounds)


def test_samples_are_of_the_validation_text(trained):
    run, _ = trained
    samples = (run / "samples.txt").read_text("utf-8")
    valid = [line.split("\t") for line in (run / "data/valid.tsv").read_text("utf-8").splitlines()]
    shown = re.findall(r"^  source       (.*)\n.*\n  reference    (.*)$", samples, re.MULTILINE)
    assert len(shown) == 2 * 2
    assert {tuple(pair) for pair in shown} <= {tuple(pair) for pair in valid} <= set(PAIRS)


def test_evaluating_a_run_that_was_moved_gives_the_score_of_its_training(using, folder):
    moved, output = folder / "elsewhere" / "moved", folder / "translations.txt"
    status, out, err = finish(using["evaluate"])
    assert status == 0, err
    scores = json.loads((moved / "scores.json").read_text())
    assert f"BLEU {scores['bleu']:.2f}  ({scores['bleu_signature']})" in out
    assert f"chrF {scores['chrf']:.2f}  ({scores['chrf_signature']})" in out
    tests = (moved / "data/test.tsv").read_text("utf-8").count("\n")
    assert output.read_text("utf-8").count("\n") == tests


def test_a_file_is_translated_line_by_line(using):
    status, out, err = finish(using["translate"])
    assert status == 0, err
    lines = out.split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""


def test_a_missing_run_is_told_in_one_line_by_every_command(tmp_path):
    waiting = [
        command("training.evaluate", "nowhere", cwd=tmp_path),
        command("kformer.translate", "nowhere", cwd=tmp_path, stdin=subprocess.DEVNULL),
    ]
    for process in waiting:
        status, out, err = finish(process)
        assert (status, out) == (2, "")
        # TensorFlow's own notes, of a missing GPU for one, may come before.
        assert re.search(r"(?:^|\n)error: nowhere: .*\n$", err) and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_finds_everything_that_is_worth_a_look(trained):
    run, _ = trained
    events = EventMultiplexer().AddRunsFromDirectory(str(run / "logs")).Reload()
    (found,) = events.Runs().values()
    assert {
        "train/loss", "train/perplexity", "train/accuracy", "validation/loss",
        "validation/perplexity", "validation/accuracy", "validation/BLEU", "validation/chrF",
        "optimizer/learning_rate", "optimizer/gradient_norm", "optimizer/updates_left_out",
        "speed/tokens_per_second", "speed/padding_share", "speed/memory_gigabytes", "samples",
        "attention/1", "attention/2", "recipe/positions", "recipe/masks", "recipe/learning_rate",
        "recipe/label_smoothing", "_hparams_/session_start_info",
    } == set(found["tensors"])  # fmt: skip
    assert (run / "logs" / "projector_config.pbtxt").is_file()
    assert list(run.glob("logs/plugins/profile/*/*.xplane.pb"))
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_run_ends_with_status_130_and_says_so(interrupted):
    run, status, out, err = interrupted
    assert status == 130, err
    assert "stopped by SIGINT" in out and "--resume" in out and "Traceback" not in err
    assert not list(run.parent.rglob("*.partial*"))


def test_an_interrupted_run_can_be_used(interrupted):
    run, *_ = interrupted
    assert list(run.glob("checkpoints/batch-*/state.json"))
    (translation,) = Translator.from_run(run, max_length=5).translate(["the blue fish is big"])
    assert "\n" not in translation


def test_overwriting_leaves_nothing_of_the_old_run(interrupted):
    run, *_ = interrupted
    assert "of the old run" not in (run / "samples.txt").read_text("utf-8")
    assert (run / "config.yaml").read_text()
