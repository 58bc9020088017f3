import json
import math
import signal
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kformer.errors import InputError
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models import Transformer
from kformer.optimizers import Adam
from kformer.run_folder import RunFolder
from kformer.schedules import LinearSchedule
from training.callbacks import measure, metrics_file, progress, stopping, tensorboard
from training.callbacks.measure import Throughput, TranslationScores
from training.callbacks.metrics_file import MetricsFile
from training.callbacks.progress import Progress, clock
from training.callbacks.samples import Translations
from training.callbacks.stopping import (
    FiniteGuard,
    PatienceLimit,
    Signals,
    TimeLimit,
    TrainingInterrupt,
    UpdateLimit,
)
from training.callbacks.tensorboard import TensorBoardLog
from training.data.rows import Pair
from training.scoring import score

PAIRS = [Pair(f"source {i}", f"a b c d e target {i}") for i in range(7)]
LOGS = {
    "loss": 3.5, "accuracy": 0.25, "perplexity": 33.1, "val_loss": 3.25, "val_accuracy": 0.5,
    "val_perplexity": 25.8, "val_bleu": 12.5, "val_chrf": 30.25, "learning_rate": 0.001,
    "tokens_per_second": 1234.5, "update": 20,
}  # fmt: skip


class Variable:
    def __init__(self, value=0):
        self.value = value

    def numpy(self):
        return np.array(self.value)


class FakeModel:
    """Counts its updates."""

    def __init__(self):
        self.optimizer = SimpleNamespace(
            iterations=Variable(),
            left_out=Variable(),
            left_out_in_a_row=Variable(),
            gradient_norm=Variable(1.5),
            learning_rate=0.25,
        )
        self.seen = Variable([0.0, 0.0, 0.0])
        self.stop_training = False


class FakeTranslator:
    """Translates correctly but for the texts that it is told to miss."""

    def __init__(self, missed=()):
        self.missed = missed

    def translate(self, texts):
        correct = {pair.source: pair.target for pair in PAIRS}
        return ["missed" if text in self.missed else correct[text] for text in texts]


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


@pytest.fixture
def writer(run):
    """Of the event files."""
    return tf.summary.create_file_writer(str(run.logs))


@pytest.fixture
def model():
    return FakeModel()


@pytest.fixture
def clock_at(monkeypatch):
    """Sets the time that the callbacks see."""
    now = SimpleNamespace(seconds=0.0)
    watch_time(monkeypatch, lambda: now.seconds)

    def clock_at(seconds):
        now.seconds = seconds

    return clock_at


def watch_time(patch, seconds):
    for module in (measure, metrics_file, progress, stopping, tensorboard):
        patch.setattr(module, "time", SimpleNamespace(perf_counter=seconds), raising=False)


def set_up(callback, model):
    callback.set_model(model)
    return callback


def after_round(callback, **logs):
    logs = {**LOGS, **logs}
    callback.on_epoch_end(0, logs)
    return logs


def scored(missed=()):
    return TranslationScores(FakeTranslator(missed), PAIRS, "13a")


# Limits


def test_training_stops_at_its_last_update_and_not_before(model):
    limit = set_up(UpdateLimit(3), model)
    stopped = []
    for model.optimizer.iterations.value in (1, 2, 3):
        limit.on_train_batch_end(0)
        stopped.append(model.stop_training)
    assert stopped == [False, False, True]


def test_an_update_that_overflowed_does_not_count(model):
    limit = set_up(UpdateLimit(2), model)
    for model.optimizer.iterations.value in (1, 1, 1):
        limit.on_train_batch_end(0)
    assert not model.stop_training


def test_training_stops_early_enough_for_a_last_validation_and_the_test(model, clock_at):
    # The test is as long as the validation text twice over.
    scores = scored()
    limit = set_up(
        TimeLimit(100.0, 10.0, scores.translator.translate, scores.sources, 2 * scores.sources),
        model,
    )
    clock_at(50)
    limit.on_train_batch_end(0)
    limit.on_test_begin()
    clock_at(60)  # Ten seconds of validation: thirty and a margin are needed at the end.
    after_round(limit)
    stopped = []
    for seconds in (70, 78, 80):
        clock_at(seconds)
        limit.on_train_batch_end(0)
        stopped.append(model.stop_training)
    assert stopped == [False, False, True]


def test_the_time_of_a_validation_is_known_before_the_first(model, clock_at):
    class SlowTranslator:
        """Takes a minute to trace, then a second a text."""

        calls = 0

        def translate(self, texts):
            self.calls += 1
            clock_at(10 + (60 if self.calls == 1 else 60 + len(texts)))

    pairs = [Pair(f"source {i}", "") for i in range(10)]
    scores = TranslationScores(SlowTranslator(), pairs, "13a")
    limit = set_up(
        TimeLimit(100.0, 10.0, scores.translator.translate, scores.sources, scores.sources), model
    )
    limit.on_train_begin()
    for seconds, stops in ((80, False), (88, False), (90, True)):
        clock_at(seconds)
        limit.on_train_batch_end(0)
        assert model.stop_training == stops


def test_training_stops_when_rounds_bring_nothing_better(model):
    best = SimpleNamespace(rounds_since_best=0)
    limit = set_up(PatienceLimit(2, best), model)
    stopped = []
    for best.rounds_since_best in (0, 1, 0, 1, 2):
        after_round(limit)
        stopped.append(model.stop_training)
    assert stopped == [False, False, False, False, True]


def test_gradients_that_are_no_numbers_end_training_with_the_batch_named(model):
    batch = (np.array([[7, 3, 0], [8, 9, 3]]), None), np.array([[5, 3, 0], [6, 6, 3]])
    keeper = SimpleNamespace(batches=12)
    asked = []
    guard = FiniteGuard(
        3,
        lambda number: asked.append(number) or batch,
        lambda ids: [f"ids {ids[0].tolist()}"],
        keeper,
    )
    set_up(guard, model)
    for model.optimizer.left_out_in_a_row.value in (0, 1, 2, 0, 1):
        guard.on_train_batch_end(0)
    model.optimizer.left_out_in_a_row.value = 3
    with pytest.raises(InputError, match=r"3 updates in a row.*batch 12 .*ids \[8, 9, 3\].*0.25"):
        guard.on_train_batch_end(0)
    assert asked == [11]


def test_a_line_that_training_diverged_at_is_told_by_its_labels(model):
    batch = (np.array([[3], [3]]), None), np.array([[5, 3, 0], [6, 6, 3]])
    model.optimizer.left_out_in_a_row.value = 3
    guard = FiniteGuard(
        3, lambda number: batch, lambda ids: ["" if ids[0][0] == 3 else f"ids {ids[0].tolist()}"],
        SimpleNamespace(batches=12),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"sentence is 'ids \[6, 6, 3\]'"):
        set_up(guard, model).on_train_batch_end(0)


class FakeKeeper:
    round_batches = 4

    def __init__(self, batches):
        self.batches = batches
        self.saved = 0

    def save(self):
        self.saved += 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_after_the_update_and_ends_training(model, number):
    usual = signal.getsignal(number)
    keeper = FakeKeeper(6)
    with Signals(keeper, lambda *flags: list(flags)) as signals:
        set_up(signals, model).on_train_batch_end(0)
        signal.raise_signal(number)
        assert keeper.saved == 0
        with pytest.raises(TrainingInterrupt) as caught:
            signals.on_train_batch_end(0)
    assert keeper.saved == 1 and caught.value.signal_number == number
    assert signal.getsignal(number) is usual


def test_a_signal_in_the_last_update_of_a_round_waits_for_the_validation(model):
    keeper = FakeKeeper(8)
    with Signals(keeper, lambda *flags: list(flags)) as signals:
        set_up(signals, model)
        signal.raise_signal(signal.SIGTERM)
        signals.on_train_batch_end(0)
        with pytest.raises(TrainingInterrupt):
            signals.on_epoch_end(0)
    assert keeper.saved == 0, "the end of a round saves by itself"


def test_what_one_worker_was_told_all_workers_do(model):
    keeper = FakeKeeper(6)
    with Signals(keeper, lambda stop, interrupted, terminated: [False, False, True]) as signals:
        with pytest.raises(TrainingInterrupt):
            set_up(signals, model).on_train_batch_end(0)
    with Signals(keeper, lambda *flags: [True, False, False]) as signals:
        set_up(signals, model).on_train_batch_end(0)
    assert model.stop_training


# Scores and samples


def test_a_round_is_scored_as_sacrebleu_scores_it():
    scores = scored(missed=["source 2", "source 5"])
    logs = after_round(scores)
    references = [pair.target for pair in PAIRS]
    expected = score(FakeTranslator(scores.translator.missed).translate(scores.sources), references)
    assert (logs["val_bleu"], logs["val_chrf"]) == (expected.bleu, expected.chrf)
    assert 0 < expected.bleu < 100


@pytest.mark.parametrize(
    ("count", "rows"),
    [(0, []), (1, [0]), (2, [0, 3]), (7, range(7)), (20, range(7))],
)
def test_samples_are_spread_over_the_text_and_none_comes_twice(run, count, rows):
    scores = scored()
    after_round(scores)
    samples = Translations(scores, run, count)
    after_round(samples)
    expected = [(PAIRS[row].source, PAIRS[row].target, PAIRS[row].target) for row in rows]
    assert samples.latest == expected


def test_samples_go_on_with_the_rounds_of_a_checkpoint(run):
    scores = scored()
    after_round(scores)
    samples = Translations(scores, run, 1)
    after_round(samples, update=20)
    later = Translations(scores, run, 1)
    later.restore(json.loads(json.dumps(samples.state())))
    after_round(later, update=40)
    assert [round_[0] for round_ in later.history] == [20, 40]
    others = Translations(scores, run, 2)
    others.restore(samples.state())
    assert others.history == [], "other sentences have no history"
    assert later.history[0] == (20, 12.5, [PAIRS[0].target])


def test_the_samples_file_tells_how_translations_change(run):
    scores = scored(missed=["source 0"])
    samples = Translations(scores, run, 1)
    after_round(scores)
    after_round(samples, update=20, val_bleu=12.5)
    scores.translator.missed = ()
    after_round(scores)
    after_round(samples, update=40, val_bleu=100.0)
    assert run.samples.read_text("utf-8").split("\n") == [
        "update 20  BLEU 12.50",
        "  source       source 0",
        "  translation  missed",
        f"  reference    {PAIRS[0].target}",
        "update 40  BLEU 100.00",
        "  source       source 0",
        f"  translation  {PAIRS[0].target}",
        f"  reference    {PAIRS[0].target}",
        "",
    ]


# Logs


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


# In `fit`


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rounds = []

    def on_epoch_end(self, epoch, logs=None):
        self.rounds.append(dict(logs))


# Labels: 5 + 2 + 3 tokens of the first batch, 2 of the second.
BATCHES = [
    (([[4, 3], [5, 3], [6, 3]], [[2, 5, 6, 7, 4], [2, 5, 0, 0, 0], [2, 4, 4, 0, 0]]),
     [[5, 6, 7, 4, 3], [5, 3, 0, 0, 0], [4, 4, 3, 0, 0]]),
    (([[4, 3]], [[2, 5, 0, 0]]), [[5, 3, 0, 0]]),
]  # fmt: skip
TOKENS = [10, 2]


def batches():
    ids = tf.TensorSpec((None, None), tf.int32)
    return tf.data.Dataset.from_generator(lambda: BATCHES, output_signature=((ids, ids), ids))


@pytest.fixture(scope="module")
def fitted():
    """Rounds of two updates, of 10 and 2 target tokens, by a clock that ticks at each update."""
    model = Transformer(
        9, 9, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1
    )
    model.compile(
        Adam(LinearSchedule(0.01, 2, 5)),
        MaskedCrossEntropy(),
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=True,
    )
    seconds = iter(range(1000))
    recorder, throughput = Recorder(), Throughput()
    with pytest.MonkeyPatch.context() as patch:
        watch_time(patch, lambda: float(next(seconds)))
        model.fit(
            batches().repeat(),
            validation_data=batches().repeat(2),
            steps_per_epoch=2,
            epochs=9,
            callbacks=[UpdateLimit(5), throughput, recorder],
            verbose=0,
        )
    return model, recorder.rounds, throughput


def test_fit_ends_at_the_last_update_after_a_last_validation(fitted):
    model, rounds, _ = fitted
    assert int(model.optimizer.iterations) == 5
    assert [logs["update"] for logs in rounds] == [2, 4, 5]
    assert all(math.isfinite(logs["val_loss"]) for logs in rounds)


def test_throughput_counts_the_target_tokens_of_training_without_padding(fitted):
    _, rounds, throughput = fitted
    # A tick an update. The first one of the run, which is traced, counts for nothing, and so does
    # validation, with twice the tokens.
    expected = [TOKENS[1] / 1, sum(TOKENS) / 2, TOKENS[0] / 1]
    assert [logs["tokens_per_second"] for logs in rounds] == pytest.approx(expected)
    assert throughput.average == pytest.approx((TOKENS[1] + sum(TOKENS) + TOKENS[0]) / 4)


def test_there_is_an_average_throughput_of_a_run_that_never_began():
    assert Throughput().average == 0.0


def test_the_rate_logged_is_that_of_the_schedule(fitted):
    _, rounds, _ = fitted
    schedule = LinearSchedule(0.01, 2, 5)
    expected = [float(schedule(logs["update"])) for logs in rounds]
    assert [logs["learning_rate"] for logs in rounds] == pytest.approx(expected)
