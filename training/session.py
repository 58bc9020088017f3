"""One training run from configuration to final score."""

import contextlib
import json
import math
import os
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import keras
import tensorflow as tf

from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models.base import SequenceModel
from kformer.run_folder import RunFolder
from kformer.translator import Translator
from training.callbacks import (
    BEST,
    Checkpoints,
    MetricsFile,
    Progress,
    Samples,
    TensorBoardLog,
    Throughput,
    TimeLimit,
    TranslationScores,
    UpdateLimit,
    clock,
)
from training.config import Config, to_yaml
from training.data.batches import evaluation_batches, training_batches
from training.data.corpus import read_pairs
from training.precision import resolve_precision
from training.prepare import PreparedText, build_model, build_optimizer, prepare_text
from training.scoring import score, score_run


def train(config: Config, folder: Path, overwrite: bool, began: float) -> int:
    """Makes a run folder: prepares the text, trains, and scores the best model on the test.

    Args:
        config: what to train.
        folder: the run folder to make.
        overwrite: whether to replace one that exists, once all of the new run is prepared.
        began: when the run started, by `time.perf_counter`.

    Returns:
        Exit status: 0, or 130 if interrupted.

    Raises:
        InputError: the corpus cannot be used, and nothing is left behind; or training diverged.
    """
    # A tokenizer that is not installed should be told now, not after the first round.
    score(["a"], ["a"], config.scoring.bleu_tokenize)
    # Seeding frees every tokenizer alive, so it comes before the first is made.
    keras.utils.set_random_seed(config.train.seed)
    run = RunFolder(folder)
    dtype = resolve_precision(config.train.precision)
    config = replace(config, train=replace(config.train, precision=dtype))
    with _making(run, overwrite) as partial:
        prepared = prepare_text(config, partial)
        partial.config.write_text(to_yaml(config), "utf-8")
        model = build_model(config.model, prepared.tokenizers, dtype)
        model.compile(
            build_optimizer(config, dtype),
            MaskedCrossEntropy(config.train.label_smoothing),
            metrics=[TokenAccuracy(), Perplexity()],
            # Every width of batch would be compiled anew.
            jit_compile=False,
        )
        _show_text(config, prepared)
        print(f"model       {model.count_params():,} parameters, {dtype}")
        print(f"device      {_device()}")
        print(f"run folder  {folder}, tensorboard --logdir {run.logs}\n", flush=True)
    throughput = Throughput()
    interrupted = _fit(config, run, model, prepared, throughput, began)
    print(
        f"\ntrained     {int(model.optimizer.iterations):,} updates, "
        f"{throughput.average:,.0f} target tokens/s, peak memory {_peak_gigabytes():.1f} GB"
    )
    if interrupted:
        print(f"interrupted; what was learned so far can be used: {folder}")
        return 130
    _, scores = score_run(run, config.scoring.bleu_tokenize)
    run.scores.write_text(json.dumps(asdict(scores), indent=2) + "\n", "utf-8")
    print(f"\nbest model on the test text, greedy search:\n{scores}")
    print(f"\ndone in {clock(time.perf_counter() - began)}. In {folder}:")
    print("  best/model.keras  metrics.jsonl  samples.txt  scores.json  logs/  config.yaml")
    print(f"  translate  python -m kformer.translate {folder} [FILE]")
    print(f"  score      python -m training.evaluate {folder}")
    print(f"  curves     tensorboard --logdir {run.logs}")
    return 0


def _fit(
    config: Config,
    run: RunFolder,
    model: SequenceModel,
    prepared: PreparedText,
    throughput: Throughput,
    began: float,
) -> bool:
    """Trains; returns whether it was interrupted. Either way the run folder has its models."""
    settings = config.train
    checkpoints = Checkpoints(run)
    checkpoints.set_model(model)
    try:
        history = model.fit(
            training_batches(prepared.train, max_tokens=settings.batch_tokens, seed=settings.seed),
            validation_data=evaluation_batches(prepared.valid, max_tokens=settings.batch_tokens),
            steps_per_epoch=settings.validate_every,
            # `UpdateLimit` ends training; float16 may skip some updates on the way.
            epochs=2 * math.ceil(settings.updates / settings.validate_every),
            callbacks=_callbacks(config, run, model, prepared, checkpoints, throughput, began),
            shuffle=False,
            verbose=0,
        )
    except KeyboardInterrupt:
        checkpoints.save()
        return True
    if not math.isfinite(history.history["loss"][-1]):
        raise InputError(
            f"training diverged: the loss is {history.history['loss'][-1]} after "
            f"{int(model.optimizer.iterations)} updates. Lower train.learning_rate or set "
            f"train.clip_norm. {_kept(run)}"
        )
    return False


def _kept(run: RunFolder) -> str:
    """What a diverged run leaves."""
    if run.best_model.exists():
        return f"{run.path} keeps the models from before"
    return f"{run.path} has no model: there was no validation before"


def _callbacks(
    config: Config,
    run: RunFolder,
    model: SequenceModel,
    prepared: PreparedText,
    checkpoints: Checkpoints,
    throughput: Throughput,
    began: float,
) -> list[keras.callbacks.Callback]:
    """In order: those that measure, then those that show and keep what was measured."""
    settings = config.train
    scores = TranslationScores(
        Translator(TranslationGraph(model, prepared.tokenizers)),
        list(read_pairs(run.text("valid"))),
        config.scoring.bleu_tokenize,
    )
    samples = Samples(scores, run, config.scoring.samples)
    callbacks = [
        keras.callbacks.TerminateOnNaN(),
        UpdateLimit(settings.updates),
        throughput,
        scores,
        samples,
        checkpoints,
        Progress(settings.updates, samples, checkpoints),
        TensorBoardLog(run, samples),
        MetricsFile(run),
    ]
    if settings.max_minutes is not None:
        test_sources = [pair.source for pair in read_pairs(run.text("test"))]
        callbacks.append(TimeLimit(60 * settings.max_minutes, began, scores, test_sources))
    if settings.patience is not None:
        callbacks.append(
            keras.callbacks.EarlyStopping(BEST, mode="max", patience=settings.patience)
        )
    return callbacks


def _show_text(config: Config, prepared: PreparedText) -> None:
    """The corpus and the vocabulary, as counted."""
    print(f"corpus      {config.data.train}")
    for part, report in prepared.reports.items():
        print(f"  {part:9} {report}")
    for part, store in (("train", prepared.train), ("valid", prepared.valid)):
        meta = store.meta
        dropped = "".join(f", {count} {reason}" for reason, count in meta.dropped.items())
        print(
            f"  {part:9} {meta.pairs:,} pairs, {meta.source_tokens:,} source and "
            f"{meta.target_tokens:,} target tokens, unknown "
            f"{_percent(meta.source_unknown, meta.source_tokens)} and "
            f"{_percent(meta.target_unknown, meta.target_tokens)}{dropped}"
        )
    source, target = prepared.tokenizers
    sizes = (
        f"{source.vocab_size:,} joint"
        if prepared.tokenizers.joint
        else (f"{source.vocab_size:,} source and {target.vocab_size:,} target")
    )
    print(f"vocabulary  {sizes} pieces, {config.tokenizer.kind}")


def _peak_gigabytes() -> float:
    """The most main memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def _device() -> str:
    """What TensorFlow computes on: it takes a GPU by itself, and says nothing if it found none."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return f"CPU, {os.cpu_count()} cores"
    names = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    return f"GPU, {', '.join(str(name) for name in names)}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.2f}%"


@contextlib.contextmanager
def _making(run: RunFolder, overwrite: bool) -> Iterator[RunFolder]:
    """A hidden folder beside the run's, which takes its place, whole, at the end."""
    path = run.path.resolve()
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        partial.mkdir(parents=True)
        yield RunFolder(partial)
        if path.exists() and not overwrite:
            raise InputError(f"{run.path}: was made by another run meanwhile. Name another: --run")
        if path.exists():
            # Renamed first, so that at no moment is a run half there.
            old = partial.with_suffix(".old")
            path.rename(old)
            partial.rename(path)
            shutil.rmtree(old)
        else:
            partial.rename(path)
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not path.exists():
            for parent in missing:
                with contextlib.suppress(OSError):
                    parent.rmdir()
