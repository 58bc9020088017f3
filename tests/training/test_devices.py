import json

import pytest

from kformer.errors import InputError
from training.devices import find_workers

WORKERS = ["a:1", "b:2", "c:3"]


def tf_config(index):
    return json.dumps({"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": index}})


@pytest.mark.parametrize(
    "environ",
    [
        {"TF_CONFIG": tf_config(1)},
        {"KFORMER_WORKERS": "a:1, b:2,c:3", "JOB_COMPLETION_INDEX": "1"},
        {"KFORMER_WORKERS": "a:1,b:2,c:3", "SLURM_PROCID": "1"},
        # TensorFlow's own goes first.
        {"TF_CONFIG": tf_config(1), "KFORMER_WORKERS": "x:1", "JOB_COMPLETION_INDEX": "0"},
    ],
)
def test_workers_are_found_in_the_environment(environ):
    assert find_workers(environ) == (WORKERS, 1)


def test_slurm_names_the_workers_of_its_step(monkeypatch):
    environ = {
        "SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    workers, index = find_workers(environ)
    assert index == 2
    assert [worker.rpartition(":")[0] for worker in workers] == ["n1", "n1", "n2", "n2"]
    assert len(set(workers)) == 4


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "multi_worker needs to know its workers"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG must hold"),
        ({"TF_CONFIG": tf_config(3)}, "TF_CONFIG must hold"),
        ({"TF_CONFIG": "[]"}, "TF_CONFIG must hold"),
        ({"KFORMER_WORKERS": "a:1"}, "does not say which this is"),
        ({"KFORMER_WORKERS": "a:1", "JOB_COMPLETION_INDEX": "1"}, "names 1 workers"),
        ({"KFORMER_WORKERS": "a:1", "JOB_COMPLETION_INDEX": "x"}, "Received: 'x'"),
    ],
)
def test_an_environment_that_names_no_workers_is_refused_in_one_line(environ, message):
    with pytest.raises(InputError, match=message) as caught:
        find_workers(environ)
    assert "\n" not in str(caught.value)
