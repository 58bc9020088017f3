import numpy as np
import pytest

from kformer.errors import InputError
from kformer.text import WordTokenizer
from training.build import begin_with, freeze


@pytest.fixture
def run(tmp_path, save_run):
    return save_run(tmp_path / "run", WordTokenizer.learn(["a b c"]))


def test_a_model_begins_with_the_weights_of_a_run(run, random_transformer):
    saved = run.load_model()
    model = random_transformer(saved.source_vocab_size)
    for weight in model.weights:
        weight.assign(weight * 0)
    begin_with(model, run)
    for own, theirs in zip(model.get_weights(), saved.get_weights(), strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_a_run_of_another_shape_is_refused(run, random_transformer):
    with pytest.raises(InputError, match="train.init_from: .*run: its model has other weights"):
        begin_with(random_transformer(7, d_ff=48), run)


def test_frozen_weights_are_those_whose_names_hold_a_pattern(random_transformer):
    model = random_transformer(9)
    freeze(model, ["embedding", "encoder.*gamma"])
    frozen = {w.path for w in model.weights} - {w.path for w in model.trainable_weights}
    assert frozen == {
        w.path
        for w in model.weights
        if "embedding" in w.path or ("encoder" in w.path and w.path.endswith("gamma"))
    }
    assert frozen and model.trainable_weights


@pytest.mark.parametrize(
    ("patterns", "message"),
    [(["nowhere"], "in no weight.s name"), (["("], "is no pattern"), ([""], "nothing to train")],
)
def test_patterns_that_cannot_be_meant_are_refused(random_transformer, patterns, message):
    with pytest.raises(InputError, match=message):
        freeze(random_transformer(9), patterns)
