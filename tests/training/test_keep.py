"""Checkpoints, and what training needs to go on from them."""

import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from kformer.errors import InputError
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models import Transformer
from kformer.optimizers import Adam
from kformer.run_folder import RunFolder
from training.callbacks.keep import Files, Keeper
from training.checkpoints import all_checkpoints, latest_checkpoint, read_checkpoint

LOGS = {"loss": 3.5, "val_loss": 3.25, "val_bleu": 12.5, "val_chrf": 30.0}


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


def make_model(d_ff=8):
    model = Transformer(
        9, 9, d_model=8, num_heads=2, d_ff=d_ff, num_encoder_layers=1, num_decoder_layers=1,
        dropout=0.1,
    )  # fmt: skip
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(Adam(0.01), MaskedCrossEntropy(), metrics=metrics)
    model.optimizer.build(model.trainable_weights)
    return model, [model.token_loss, *metrics]


@pytest.fixture(scope="module")
def made():
    return make_model()


class Saved:
    """A model that is saved as the number of its round."""

    weights: list = []
    variables: list = []
    metrics_variables: list = []

    def __init__(self):
        self.version = 0
        self.optimizer = SimpleNamespace(
            variables=[], iterations=SimpleNamespace(numpy=lambda: np.int64(self.version))
        )

    def save(self, path):
        path.write_text(str(self.version))


def keeper_of(run, model, metrics=(), best_by=("val_bleu", True), **options):
    options = {"others": {}, "round_batches": 4, **options}
    keeper = Keeper(run, best_by, metrics, **options)
    keeper.set_model(model)
    return keeper


def rounds(keeper, *figures):
    for changed in figures:
        keeper.model.version += 1
        keeper.batches += keeper.round_batches
        keeper.on_epoch_end(0, {**LOGS, **changed})


def test_the_best_model_is_kept_through_a_worse_round(run):
    keeper = keeper_of(run, Saved())
    rounds(keeper, *({"val_bleu": bleu} for bleu in (10.0, 20.0, 15.0, 20.0)))
    assert run.best_model.read_text() == "2"
    assert keeper.rounds_since_best == 2 and not keeper.improved


def test_among_equal_scores_the_model_of_the_lower_loss_is_the_best(run):
    rounds(keeper_of(run, Saved()), *({"val_bleu": 0.0, "val_loss": x} for x in (6.0, 5.0, 5.5)))
    assert run.best_model.read_text() == "2"


def test_the_lowest_loss_may_be_what_makes_a_model_the_best(run):
    keeper = keeper_of(run, Saved(), best_by=("val_loss", False))
    rounds(keeper, {"val_loss": 6.0}, {"val_loss": 4.0, "val_bleu": 1.0}, {"val_loss": 5.0})
    assert run.best_model.read_text() == "2"


def test_a_run_that_goes_on_does_not_replace_its_best_model_by_a_worse_one(run):
    rounds(keeper_of(run, Saved()), {"val_bleu": 10.0}, {"val_bleu": 20.0})
    later = keeper_of(run, Saved())
    later.restore(latest_checkpoint(run.checkpoints))
    later.model.version = 2
    rounds(later, {"val_bleu": 15.0})
    assert run.best_model.read_text() == "2"
    assert later.rounds_since_best == 1 and later.batches == 12


def test_as_many_checkpoints_are_kept_as_asked_for(run):
    keeper = keeper_of(run, Saved(), keep=2)
    rounds(keeper, {}, {}, {})
    assert [path.name for path in all_checkpoints(run.checkpoints)] == [
        "update-00000008", "update-00000012",
    ]  # fmt: skip


def test_checkpoints_within_a_round_come_as_often_as_asked_for(run):
    keeper = keeper_of(run, Saved(), save_every=3, keep=9, round_batches=6)
    for batch in range(12):
        keeper.on_train_batch_end(batch)
    # The sixth and the twelfth end a round, which saves after its validation.
    assert [path.name for path in all_checkpoints(run.checkpoints)] == [
        "update-00000003", "update-00000009",
    ]  # fmt: skip
    assert run.best_model.exists()


def change_all(model, metrics, by):
    variables = [*model.variables, *model.optimizer.variables]
    variables += [variable for metric in metrics for variable in metric.variables]
    for variable in variables:
        value = variable.numpy()
        variable.assign((value + by).astype(value.dtype))
    return variables


def test_everything_comes_back_as_it_was(run, made):
    model, metrics = made
    keeper = keeper_of(run, model, metrics)
    keeper.batches = 6
    before = [variable.numpy() for variable in change_all(model, metrics, 1)]
    keeper.save()
    variables = change_all(model, metrics, 2)
    again = keeper_of(run, model, metrics)
    again.restore(latest_checkpoint(run.checkpoints))
    model.reset_metrics()  # As Keras does when a round begins.
    again.on_epoch_begin(1)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.path)
    assert again.batches == 6


def test_the_sums_of_a_finished_round_do_not_come_back(run, made):
    model, metrics = made
    keeper = keeper_of(run, model, metrics)
    change_all(model, metrics, 1)
    keeper.on_epoch_end(0, LOGS)
    again = keeper_of(run, model, metrics)
    again.restore(latest_checkpoint(run.checkpoints))
    model.reset_metrics()
    again.on_epoch_begin(1)
    assert model.token_loss.count.numpy() == 0


@pytest.mark.parametrize("damage", ["cut", "changed", "no state", "half a state", "empty"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(run, made, capsys, damage):
    keeper = keeper_of(run, *made)
    for keeper.batches in (1, 2):
        keeper.save()
    newest = all_checkpoints(run.checkpoints)[-1]
    variables, state = newest / "variables.npz", newest / "state.json"
    content = variables.read_bytes()
    if damage == "cut":
        variables.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        variables.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    elif damage == "no state":
        state.unlink()
    elif damage == "half a state":
        state.write_text(state.read_text()[:20])
    else:
        variables.write_bytes(b"")
    assert latest_checkpoint(run.checkpoints).state["batches"] == 1
    err = capsys.readouterr().err
    assert err.startswith("warning: ") and newest.name in err and err.count("\n") == 1
    with pytest.raises(InputError, match=newest.name):
        read_checkpoint(newest)


def test_without_a_whole_checkpoint_there_is_none(run, tmp_path):
    assert latest_checkpoint(run.checkpoints) is None
    (run.checkpoints / "update-00000003").mkdir(parents=True)
    assert latest_checkpoint(run.checkpoints) is None


def test_a_checkpoint_of_another_model_is_refused(run, made):
    keeper_of(run, *made).save()
    with pytest.raises(InputError, match=r"of another model .*\(8, 8\), here \(8, 24\)"):
        keeper_of(run, *make_model(d_ff=24)).restore(latest_checkpoint(run.checkpoints))


def test_what_files_hold_after_a_checkpoint_is_cut_off_and_written_again(run):
    files = Files(run)
    run.metrics.write_text("one\n")
    state = files.state()
    run.metrics.write_text("one\ntwo\n")
    run.samples.write_text("sample\n")
    files.restore(state)
    assert run.metrics.read_text() == "one\n" and run.samples.read_text() == ""


def test_figures_that_are_no_numbers_can_be_kept(run):
    keeper = keeper_of(run, Saved())
    rounds(keeper, {"val_bleu": 0.0, "val_loss": math.inf})
    later = keeper_of(run, Saved())
    later.restore(latest_checkpoint(run.checkpoints))
    assert later.best == (0.0, -math.inf)


def test_dropout_draws_on_from_where_it_was(run, made):
    model, metrics = made
    keeper = keeper_of(run, model, metrics)
    keeper.save()
    ids = np.array([[4, 5, 6, 3]] * 20)

    def drawn():
        return np.asarray(model([ids, ids], training=True))

    first, second = drawn(), drawn()
    assert (first != second).any()
    keeper_of(run, model, metrics).restore(latest_checkpoint(run.checkpoints))
    np.testing.assert_array_equal(drawn(), first)
    assert isinstance(model, keras.Model)
