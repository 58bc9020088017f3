"""A training that is killed and goes on ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from training.checkpoints import all_checkpoints, read_checkpoint

ROOT = Path(__file__).resolve().parents[2]
WORDS = "house tree sea land seal whale stone river".split()
ROWS = [f"the {a} sees a {b} now\tjetzt sieht {b} den {a}" for a in WORDS for b in WORDS]
OPTIONS = [
    "--tokenizer.vocab_size=330", "--train.precision=float32", "--train.updates=20",
    "--train.warmup_updates=4", "--train.validate_every=8", "--train.save_every=3",
    "--train.batch_tokens=128", "--scoring.samples=0", "--model.d_model=16", "--model.d_ff=16",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    (folder / "text.tsv").write_text("\n".join(ROWS))
    return folder


def start(folder, run, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "training.run", "tiny", "--data.train=text.tsv", *OPTIONS,
         "--run", run, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def finish(process):
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    return out


def last(run):
    return read_checkpoint(all_checkpoints(run / "checkpoints")[-1])


@pytest.fixture(scope="module")
def whole(folder):
    finish(start(folder, "whole"))
    return last(folder / "whole")


def assert_same(one, other):
    assert one.state["batches"] == other.state["batches"]
    assert one.state["callbacks"]["best"] == other.state["callbacks"]["best"]
    for group, arrays in one.variables.items():
        for array, expected in zip(arrays, other.variables[group], strict=True):
            np.testing.assert_array_equal(array, expected)


def figures(run):
    """All that is measured but speed and time."""
    return [line.split('"update"')[0] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_a_random_moment_it_ends_as_if_it_had_not_been(folder, whole, seed):
    run = folder / f"killed {seed}"
    checkpoints = random.Random(seed).randrange(1, 6)
    process = start(folder, run.name)
    seen, deadline = set(), time.monotonic() + 200
    while len(seen) < checkpoints and process.poll() is None:
        assert time.monotonic() < deadline
        seen |= set(all_checkpoints(run / "checkpoints"))
        time.sleep(0.002)
    process.kill()
    process.communicate()
    finish(start(folder, run.name))
    assert_same(last(run), whole)
    assert figures(run) == figures(folder / "whole")


@pytest.mark.slow
def test_stopped_by_a_signal_and_raised_in_length_it_goes_on(folder, whole):
    run = folder / "stopped"
    process = start(folder, run.name)
    while not (run / "checkpoints").is_dir():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out = finish(process)
    assert "stopped by SIGTERM" in out
    out = finish(start(folder, run.name))
    assert "goes on from" in out
    assert_same(last(run), whole)
    # It is done: only more updates are more to do.
    process = start(folder, run.name)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and "raise train.updates" in out
    finish(start(folder, run.name, "--train.updates=24"))
    assert last(run).state["batches"] == 24


@pytest.mark.slow
def test_other_settings_are_refused_with_the_difference(folder, whole):
    command = [sys.executable, "-m", "training.run", "whole", "--resume", "--model.d_model=32"]
    process = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert process.returncode == 2
    assert "model.d_model 16, here 32" in process.stderr and process.stderr.count("\n") == 1
