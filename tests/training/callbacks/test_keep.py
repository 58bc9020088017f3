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
from training.callbacks.averages import Averages
from training.callbacks.best import Best
from training.callbacks.keep import Files, Keeper
from training.checkpoints import (
    all_checkpoints,
    best_checkpoints,
    latest_checkpoint,
    read_checkpoint,
)

LOGS = {"loss": 3.5, "val_loss": 3.25, "val_bleu": 12.5, "val_chrf": 30.0}


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


def make_model(d_ff=8, average_decay=None):
    model = Transformer(
        9, 9, d_model=8, num_heads=2, d_ff=d_ff, num_encoder_layers=1, num_decoder_layers=1,
        dropout=0.1,
    )  # fmt: skip
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(Adam(0.01, average_decay=average_decay), MaskedCrossEntropy(), metrics=metrics)
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
    stop_training = False

    def __init__(self):
        self.version = 0
        self.optimizer = SimpleNamespace(
            variables=[],
            averages=[],
            iterations=SimpleNamespace(numpy=lambda: np.int64(self.version)),
        )

    def save(self, path):
        path.write_text(str(self.version))


def keeper_of(run, model, metrics=(), **options):
    options = {"others": {}, "round_batches": 4, **options}
    keeper = Keeper(run, best_of(run, model), metrics, **options)
    keeper.set_model(model)
    return keeper


def best_of(run, model, *best_by):
    best = Best(run, *(best_by or ("val_bleu",)))
    best.set_model(model)
    return best


def rounds(best, *figures):
    for changed in figures:
        best.model.version += 1
        best.on_epoch_end(0, {**LOGS, **changed})


def kept_rounds(keeper, *figures):
    for changed in figures:
        keeper.batches += keeper.round_batches
        rounds(keeper.best, changed)
        keeper.on_epoch_end(0, {**LOGS, **changed})


def kept(run):
    return [int(path.name.removeprefix("batch-")) for path in all_checkpoints(run.checkpoints)]


def test_the_best_model_is_kept_through_a_worse_round(run):
    best = best_of(run, Saved())
    rounds(best, *({"val_bleu": bleu} for bleu in (10.0, 20.0, 15.0, 20.0)))
    assert run.best_model.read_text() == "2"
    assert best.rounds_since_best == 2 and not best.improved


def test_among_equal_scores_the_model_of_the_lower_loss_is_the_best(run):
    rounds(best_of(run, Saved()), *({"val_bleu": 0.0, "val_loss": x} for x in (6.0, 5.0, 5.5)))
    assert run.best_model.read_text() == "2"


def test_the_lowest_loss_may_be_what_makes_a_model_the_best(run):
    best = best_of(run, Saved(), "val_loss", False)
    rounds(best, {"val_loss": 6.0}, {"val_loss": 4.0, "val_bleu": 1.0}, {"val_loss": 5.0})
    assert run.best_model.read_text() == "2"


def test_a_run_that_goes_on_does_not_replace_its_best_model_by_a_worse_one(run):
    kept_rounds(keeper_of(run, Saved()), {"val_bleu": 10.0}, {"val_bleu": 20.0})
    later = keeper_of(run, Saved())
    later.restore(latest_checkpoint(run.checkpoints))
    later.model.version = 2
    kept_rounds(later, {"val_bleu": 15.0})
    assert run.best_model.read_text() == "2"
    assert later.best.rounds_since_best == 1 and later.batches == 12


def test_as_many_checkpoints_are_kept_as_asked_for(run):
    keeper = keeper_of(run, Saved(), keep=2)
    kept_rounds(keeper, {}, {}, {})
    assert kept(run) == [8, 12]


def test_the_checkpoints_of_the_best_rounds_are_kept_beside_the_newest(run):
    keeper = keeper_of(run, Saved(), keep=1, keep_best=2, round_batches=10, save_every=5)
    for bleu in (30.0, 10.0, 20.0, 40.0, 15.0):
        keeper.batches += 5
        keeper.save()
        keeper.batches -= 5
        kept_rounds(keeper, {"val_bleu": bleu})
    assert kept(run) == [10, 40, 50]
    assert [path.name for path in best_checkpoints(run.checkpoints, 3)] == [
        "batch-00000040", "batch-00000010", "batch-00000050",
    ]  # fmt: skip


def test_checkpoints_within_a_round_come_as_often_as_asked_for(run):
    keeper = keeper_of(run, Saved(), save_every=3, keep=9, round_batches=6)
    for batch in range(12):
        keeper.on_train_batch_end(batch)
    # The sixth and the twelfth end a round, which saves after its validation.
    assert kept(run) == [3, 9]
    assert run.best_model.exists()


def test_the_last_update_is_saved_with_its_validation_only(run):
    keeper = keeper_of(run, Saved(), save_every=1, round_batches=6)
    keeper.on_train_batch_end(0)
    keeper.model.stop_training = True
    keeper.on_train_batch_end(1)
    assert kept(run) == [1]


def test_a_checkpoint_of_another_version_is_told_in_one_line(run, made):
    keeper_of(run, *made).save()
    with pytest.raises(InputError, match="made by another version"):
        later = keeper_of(run, *made, others={"new": None})
        later.restore(latest_checkpoint(run.checkpoints))


def test_averages_take_the_place_of_the_weights_in_validation_only():
    model, _ = make_model(average_decay=0.9)
    averages = Averages()
    averages.set_model(model)
    before = model.get_weights()
    averages.on_test_begin()  # Without an update there is no average.
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)
    averages.on_epoch_end(0)
    model.optimizer.iterations.assign(3)
    for average in model.optimizer.averages:
        average.assign(np.full(average.shape, 0.25))
    averages.on_test_begin()
    for weight in model.get_weights():
        np.testing.assert_array_equal(weight, 0.25)
    averages.on_epoch_end(0)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)
    for average in model.optimizer.averages:
        np.testing.assert_array_equal(average, 0.25)


def test_a_run_that_stops_before_its_first_validation_leaves_the_averages_as_its_model(run):
    model, _ = make_model(average_decay=0.9)
    model.optimizer.iterations.assign(3)
    for average in model.optimizer.averages:
        average.assign(np.full(average.shape, 0.25))
    before = model.get_weights()
    best_of(run, model).save_if_none()
    for weight in run.load_model().get_weights():
        np.testing.assert_array_equal(weight, 0.25)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


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
    (run.checkpoints / "batch-00000003").mkdir(parents=True)
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
    files.restore({**state, "samples.txt": 0})
    files.restore({**state, "metrics.jsonl": 99})  # Nothing is put where there is nothing.
    assert run.metrics.read_text() == "one\n" and run.samples.read_text() == ""


def test_figures_that_are_no_numbers_can_be_kept(run):
    keeper = keeper_of(run, Saved())
    kept_rounds(keeper, {"val_bleu": 0.0, "val_loss": math.inf})
    later = keeper_of(run, Saved())
    later.restore(latest_checkpoint(run.checkpoints))
    assert later.best.best == (0.0, -math.inf)


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
