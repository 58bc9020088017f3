"""What a round leaves: figures in files, TensorBoard, lines on the terminal."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.training.callbacks.conftest import (
    LOGS,
    PAIRS,
    after_round,
    scored,
    set_up,
)
from training.callbacks.metrics_file import MetricsFile
from training.callbacks.progress import Progress, clock
from training.callbacks.samples import Translations
from training.callbacks.tensorboard import TensorBoardLog


def test_metrics_are_a_line_of_json_a_round(run, model, clock_at):
    metrics = set_up(MetricsFile(run), model)
    clock_at(12.34)
    after_round(metrics)
    after_round(metrics, update=40, loss=np.float32(1.5))
    first, second = map(json.loads, run.metrics.read_text().splitlines())
    assert first == {**LOGS, "seconds": 12.3}
    assert (second["update"], second["loss"]) == (40, 1.5)


def test_the_clock_of_the_metrics_goes_on(run, model, clock_at):
    metrics = set_up(MetricsFile(run), model)
    clock_at(100)
    state = metrics.state()
    clock_at(5000)
    later = set_up(MetricsFile(run), model)
    later.restore(state)
    clock_at(5020)
    after_round(later)
    assert json.loads(run.metrics.read_text())["seconds"] == 120


def test_metrics_of_a_diverged_round_are_still_json(run, model):
    after_round(set_up(MetricsFile(run), model), loss=math.nan, val_loss=math.inf)

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    (line,) = run.metrics.read_text().splitlines()
    figures = json.loads(line, parse_constant=refuse)
    assert figures["loss"] is None and figures["val_bleu"] == LOGS["val_bleu"]


def test_tensorboard_reads_every_figure_and_the_samples(run, writer, model):
    scores = scored(missed=["source 0"])
    samples = Translations(scores, run, 2)
    log = set_up(TensorBoardLog(writer, samples), model)
    for update in (25, 45):
        after_round(scores)
        after_round(samples, update=update - 5)
        after_round(log, update=update, loss=update / 10)
    writer.close()
    events = EventAccumulator(str(run.logs))
    events.Reload()
    tags = {
        "train/loss": "loss", "train/accuracy": "accuracy", "train/perplexity": "perplexity",
        "validation/loss": "val_loss", "validation/accuracy": "val_accuracy",
        "validation/perplexity": "val_perplexity", "validation/BLEU": "val_bleu",
        "validation/chrF": "val_chrf", "optimizer/learning_rate": "learning_rate",
        "speed/tokens_per_second": "tokens_per_second",
    }  # fmt: skip
    assert set(events.Tags()["tensors"]) == {*tags, "samples"}
    for tag, name in tags.items():
        points = [(e.step, tf.make_ndarray(e.tensor_proto).item()) for e in events.Tensors(tag)]
        values = [2.5, 4.5] if name == "loss" else [LOGS[name]] * 2
        assert points == [(25, pytest.approx(values[0])), (45, pytest.approx(values[1]))]
    text = tf.make_ndarray(events.Tensors("samples")[-1].tensor_proto).item().decode()
    assert text.split("\n") == [
        "| update | BLEU | source 0 |",
        "|---|---|---|",
        "| 20 | 12.50 | missed |",
        "| 40 | 12.50 | missed |",
        f"| reference | | {PAIRS[0].target} |",
        "",
        "| update | BLEU | source 3 |",
        "|---|---|---|",
        f"| 20 | 12.50 | {PAIRS[3].target} |",
        f"| 40 | 12.50 | {PAIRS[3].target} |",
        f"| reference | | {PAIRS[3].target} |",
        "",
    ]


def test_a_bar_in_a_sample_does_not_break_the_table(run, writer, model):
    samples = SimpleNamespace(
        figure="BLEU", sources=["a|b"], references=["d|"], history=[(1, 2.0, ["c"])]
    )
    log = set_up(TensorBoardLog(writer, samples), model)
    after_round(log)
    writer.close()
    events = EventAccumulator(str(run.logs))
    events.Reload()
    text = tf.make_ndarray(events.Tensors("samples")[0].tensor_proto).item().decode()
    assert text.split("\n")[0].endswith("| a\\|b |") and "| | d\\| |" in text


def test_between_rounds_the_curves_have_a_point_every_twenty_updates(run, writer, model, clock_at):
    samples = SimpleNamespace(sources=[], references=[], history=[])
    log = set_up(TensorBoardLog(writer, samples), model)
    clock_at(100)
    log.on_epoch_begin(0)
    for update in range(1, 46):
        # Ten tokens an update; a loss of 4 a token, of 2 from the twentieth on; half a second.
        model.optimizer.iterations.value, model.optimizer.learning_rate = update, update / 1000
        model.seen.value[0] += 10 * (4 if update <= 20 else 2)
        model.seen.value[1] += 10
        model.seen.value[2] += 16
        clock_at(100 + update / 2)
        log.on_train_batch_end(update)
    after_round(log, update=45)
    writer.close()
    events = EventAccumulator(str(run.logs))
    events.Reload()

    def points(tag):
        return [(e.step, tf.make_ndarray(e.tensor_proto).item()) for e in events.Tensors(tag)]

    assert points("train/loss") == [(20, 4), (40, 2), (45, LOGS["loss"])]
    assert [step for step, _ in points("optimizer/learning_rate")] == [20, 40, 45]
    assert points("optimizer/learning_rate")[1][1] == pytest.approx(0.04)
    assert points("speed/tokens_per_second")[:2] == [(20, 20), (40, 20)]
    assert [step for step, _ in points("train/perplexity")] == [45]
    assert points("speed/padding_share") == [(20, 0.375), (40, 0.375)]
    assert points("optimizer/gradient_norm") == [(20, 1.5), (40, 1.5)]
    assert points("optimizer/updates_left_out") == [(20, 0), (40, 0)]
    assert all(0.01 < value < 100 for _, value in points("speed/memory_gigabytes"))


def test_progress_marks_the_rounds_that_are_the_best_so_far(run, model, capsys):
    samples = SimpleNamespace(latest=[("Quelle", "source", "spring")])
    best = SimpleNamespace(improved=False)
    shown = set_up(Progress(100, samples, best), model)
    shown.on_train_begin()
    for bleu, best.improved in ((0.0, True), (12.5, True), (11.0, False), (12.5, True)):
        shown.on_epoch_begin(0)
        after_round(shown, val_bleu=bleu)
    out = capsys.readouterr().out
    rounds = [line for line in out.split("\n") if line.startswith("update 20/100")]
    assert ["(best)" in line for line in rounds] == [True, True, False, True]
    assert "BLEU 12.50" in rounds[1] and "1,234 tokens/s" in rounds[1]
    assert out.count("    Quelle\n    -> source\n    == spring\n") == 4


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (65, "1:05"), (7389, "2:03:09")]
)
def test_times_are_shown_as_on_a_clock(seconds, shown):
    assert clock(seconds) == shown
