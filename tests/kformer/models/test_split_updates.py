"""The same batches give the same updates, however the work is split."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("split_update.py")
ROOT = Path(__file__).parents[3]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def start(model, kind, parts, file, **environ):
    return subprocess.Popen(
        [sys.executable, SCRIPT, model, kind, str(parts), file],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-3000:]


def assert_same(one, other):
    assert one.files == other.files
    for name in one.files:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the same on one device, in one part, ends with, by model."""

    @functools.cache
    def whole(model):
        file = tmp_path_factory.mktemp("split") / "one.npz"
        finished(start(model, "one", 1, file))
        return np.load(file)

    return whole


def test_something_is_learned_and_clipped(whole):
    whole = whole("transformer")
    assert (whole["norms"] > 0.5).all()
    accuracy, loss, perplexity = whole["evaluated"]
    assert perplexity == pytest.approx(np.exp(loss), rel=1e-5)
    assert loss < whole["figures"][1]


@pytest.mark.parametrize(
    ("model", "kind", "parts"),
    [
        ("transformer", "accumulated", 2),
        ("transformer", "mirrored", 2),
        slow("transformer", "accumulated", 4),
        slow("transformer", "mirrored", 3),
        slow("recurrent", "accumulated", 2),
        slow("recurrent", "mirrored", 2),
        slow("language_model", "accumulated", 2),
        slow("language_model", "mirrored", 2),
    ],
)
def test_a_batch_in_parts_gives_the_update_of_the_whole(whole, tmp_path, model, kind, parts):
    finished(start(model, kind, parts, tmp_path / "parts.npz"))
    assert_same(np.load(tmp_path / "parts.npz"), whole(model))


@pytest.mark.parametrize("model", ["transformer", *map(slow, ("recurrent", "language_model"))])
def test_two_workers_give_the_update_of_one(whole, tmp_path, free_addresses, model):
    workers = free_addresses(2)
    processes = [
        start(
            model,
            "workers",
            2,
            tmp_path / f"{index}.npz",
            TF_CONFIG=json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            ),
        )
        for index in range(2)
    ]
    for process in processes:
        finished(process)
    for index in range(2):
        assert_same(np.load(tmp_path / f"{index}.npz"), whole(model))
