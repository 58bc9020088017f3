"""Whole runs on several devices end as a run on one."""

import json
import os
import re
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
VALID = [f"one {a} and one {b}\tein {a} und ein {b}" for a in WORDS for b in WORDS]
RUN = [
    "training.run", "tiny", "--data.train=text.tsv", "--data.valid=valid.tsv",
    "--tokenizer.vocab_size=330", "--train.precision=float32", "--train.updates=8",
    "--train.warmup_updates=2", "--train.validate_every=4", "--train.batch_tokens=128",
    "--scoring.samples=1",
    "--model.d_model=16", "--model.d_ff=16", "--model.dropout=0", "--train.optimizer=adam",
    "--train.learning_rate=1e-3", "--train.ema=0.5",
]  # fmt: skip
# The command line on two virtual devices, which no option makes.
ON_TWO_DEVICES = """
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from training.run import main
sys.exit(main(sys.argv[1:]))
"""


def start(folder, *words, **environ):
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    (folder / "text.tsv").write_text("\n".join(ROWS))
    (folder / "valid.tsv").write_text("\n".join(VALID))
    finish(start(folder, "-m", *RUN, "--run=one"))
    return folder


def assert_ends_as_one(folder, run):
    one, other = (
        read_checkpoint(all_checkpoints(folder / name / "checkpoints")[-1]) for name in ("one", run)
    )
    assert one.state["batches"] == other.state["batches"] == 8
    for array, expected in zip(other.variables["model"], one.variables["model"], strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-4)
    losses = [
        [json.loads(line)["val_loss"] for line in (folder / name / "metrics.jsonl").open()]
        for name in ("one", run)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def workers(folder, run, addresses, *words):
    return [
        start(
            folder,
            "-m",
            *RUN,
            f"--run={run}",
            "--train.strategy=multi_worker",
            *words,
            KFORMER_WORKERS=",".join(addresses),
            JOB_COMPLETION_INDEX=str(index),
        )  # fmt: skip
        for index in range(2)
    ]


@pytest.mark.slow
def test_a_run_on_two_devices_of_a_machine(folder):
    out = finish(start(folder, "-c", ON_TWO_DEVICES, *RUN[1:], "--run=mirrored",
                       "--train.strategy=mirrored"))  # fmt: skip
    assert "2 replicas" in out
    assert_ends_as_one(folder, "mirrored")


@pytest.mark.slow
def test_a_run_of_two_workers_of_which_the_first_writes(folder, free_addresses):
    chief, other = workers(folder, "workers", free_addresses(2))
    out, silence = finish(chief), finish(other)
    assert "BLEU" in out and "BLEU" not in silence
    assert_ends_as_one(folder, "workers")
    assert not list(folder.glob(".*partial*"))


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_others_within_a_minute_and_a_restart_goes_on(
    folder, free_addresses
):
    processes = workers(folder, "killed", free_addresses(2), "--train.save_every=1")
    deadline = time.monotonic() + 200
    while not all_checkpoints(folder / "killed" / "checkpoints"):
        assert time.monotonic() < deadline and all(p.poll() is None for p in processes)
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGKILL)
    processes[1].communicate()
    _, err = processes[0].communicate(timeout=60)
    assert processes[0].returncode == 2
    assert re.search(r"(^|\n)error: another worker is gone", err) and "Traceback" not in err
    processes = workers(folder, "killed", free_addresses(2), "--train.save_every=1")
    assert "goes on from" in finish(processes[0])
    finish(processes[1])
    assert_ends_as_one(folder, "killed")
