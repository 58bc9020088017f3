import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from kformer.losses import MaskedCrossEntropy
from kformer.optimizers import Adam
from kformer.run_folder import RunFolder
from kformer.text import WordTokenizer
from training.average import main, mean_weights
from training.checkpoints import all_checkpoints, save_checkpoint


@pytest.fixture
def run(tmp_path, save_run):
    """With three checkpoints of different weights."""
    texts = {"valid": ["a b", "c a"], "test": ["b"]}
    run = save_run(tmp_path / "run", WordTokenizer.learn(["a b c"]), texts)
    weights = run.load_model().get_weights()
    for number in (1, 2, 3):
        variables = [
            SimpleNamespace(numpy=lambda own=own, number=number: own * number) for own in weights
        ]
        # The third was made between validations.
        state = {"update": number, "score": {1: [20.0, -1.0], 2: [30.0, None]}.get(number)}
        save_checkpoint(run.checkpoints, number, {"model": variables}, state)
    return run


def test_the_mean_is_that_of_numpy():
    rng = np.random.default_rng(2)
    arrays = [[rng.normal(size=s).astype("float32") for s in ((2, 3), (4,))] for _ in range(3)]
    for i, mean in enumerate(mean_weights(arrays)):
        assert mean.dtype == np.float32
        np.testing.assert_allclose(mean, np.mean([own[i] for own in arrays], axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "factor"),
    [([], 2.0), (["--last=2"], 2.5), (["--last=1"], 3.0), (["--best=2"], 1.5), (["--best=1"], 2.0)],
)
def test_the_new_run_has_the_mean_of_its_checkpoints(run, tmp_path, capsys, options, factor):
    assert main([str(run.path), "--out", str(tmp_path / "mean"), *options]) == 0
    made = RunFolder.open(tmp_path / "mean")
    means, weights = made.load_model().get_weights(), run.load_model().get_weights()
    for mean, own in zip(means, weights, strict=True):
        np.testing.assert_allclose(mean, factor * own, rtol=1e-6)
    out = capsys.readouterr().out
    assert out.count("validation BLEU") == 2 and "updates" in out


def test_of_a_run_with_averages_the_averages_are_averaged(run, tmp_path):
    model = run.load_model()
    model.compile(Adam(0.01, average_decay=0.9), MaskedCrossEntropy())
    model.optimizer.build(model.trainable_weights)
    run.save_model(model, run.best_model)
    run.config.write_text("train:\n  ema: 0.9\n")
    for number in (1, 2):
        model.optimizer.iterations.assign(number)
        for average in model.optimizer.averages:
            average.assign(np.full(average.shape, number))
        groups = {"model": model.weights, "optimizer": model.optimizer.variables}
        save_checkpoint(run.checkpoints, number, groups, {"update": number, "score": None})
    shutil.rmtree(all_checkpoints(run.checkpoints)[-1])
    assert main([str(run.path), "--out", str(tmp_path / "mean")]) == 0
    for weight in RunFolder(tmp_path / "mean").load_model().get_weights():
        np.testing.assert_array_equal(weight, 1.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--last=4"], "holds 3 checkpoints, not 4"),
        (["--best=3"], "holds 2 checkpoints of validations, not 3"),
        (["--last=0"], "--last must be at least 1"),
        (["--best=0"], "--best must be at least 1"),
    ],
)
def test_more_than_there_are_is_refused_in_one_line(run, tmp_path, capsys, options, message):
    assert main([str(run.path), "--out", str(tmp_path / "mean"), *options]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "mean").exists()
