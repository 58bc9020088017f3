"""One training run from configuration to final score."""

import json
import math
import os
import resource
import shutil
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import keras
import tensorflow as tf

from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models.base import SequenceModel
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers
from kformer.translator import Translator
from training.build import build_model, build_optimizer
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
from training.data.encoding import load_encoders
from training.data.prepare import PreparedText
from training.data.rows import Pair
from training.data.sampling import SampledStore
from training.data.shapes import Shape, choose_shapes
from training.folders import making_folder
from training.precision import resolve_precision
from training.scoring import score_run


def train(
    config: Config, prepared: PreparedText, folder: Path, overwrite: bool, began: float
) -> int:
    """Makes a run folder: trains, and scores the best model on the test.

    Args:
        config: what to train.
        prepared: the text, made with this configuration.
        folder: the run folder to make.
        overwrite: whether to replace one that exists, once all of the new run is there.
        began: when the run started, by `time.perf_counter`.

    Returns:
        Exit status: 0, or 130 if interrupted.

    Raises:
        InputError: the run folder cannot be made, and nothing is left behind; or training
            diverged.
    """
    # Seeding frees every tokenizer alive, so it comes before the first is made.
    keras.utils.set_random_seed(config.train.seed)
    run = RunFolder(folder)
    dtype = resolve_precision(config.train.precision)
    config = replace(config, train=replace(config.train, precision=dtype))
    with making_folder(folder, overwrite) as made:
        new = RunFolder(made)
        _take_over(prepared, new)
        new.config.write_text(to_yaml(config), "utf-8")
        tokenizers = new.load_tokenizers()
        model = build_model(config.model, tokenizers, dtype)
        model.compile(
            build_optimizer(config, dtype),
            MaskedCrossEntropy(config.train.label_smoothing),
            metrics=[TokenAccuracy(), Perplexity()],
            jit_compile=config.train.jit_compile,
        )
        print(f"model       {model.count_params():,} parameters, {dtype}")
        print(f"device      {_device()}")
        print(f"run folder  {folder}, tensorboard --logdir {run.logs}\n", flush=True)
    throughput = Throughput()
    interrupted = _fit(config, run, model, tokenizers, prepared, throughput, began)
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
    tokenizers: Tokenizers,
    prepared: PreparedText,
    throughput: Throughput,
    began: float,
) -> bool:
    """Trains; returns whether it was interrupted. Either way the run folder has its models."""
    settings = config.train
    checkpoints = Checkpoints(run)
    checkpoints.set_model(model)
    shapes = _shapes(config, prepared) if config.data.static_shapes else None
    sampled = config.tokenizer.sampling is not None
    train = _sampled(config, prepared, run) if sampled else prepared.train
    try:
        history = model.fit(
            training_batches(
                train,
                max_tokens=settings.batch_tokens,
                seed=settings.seed,
                corpus_pairs=prepared.train.meta.corpus_pairs,
                weights=config.data.weights,
                shapes=shapes,
            ),
            validation_data=evaluation_batches(
                prepared.valid, max_tokens=settings.batch_tokens, shapes=shapes
            ),
            steps_per_epoch=settings.validate_every,
            # `UpdateLimit` ends training; float16 may skip some updates on the way.
            epochs=2 * math.ceil(settings.updates / settings.validate_every),
            callbacks=_callbacks(config, run, model, tokenizers, checkpoints, throughput, began),
            shuffle=False,
            verbose=0,
        )
    except KeyboardInterrupt:
        checkpoints.save()
        return True
    finally:
        if sampled:
            train.close()
    if not math.isfinite(history.history["loss"][-1]):
        raise InputError(
            f"training diverged: the loss is {history.history['loss'][-1]} after "
            f"{int(model.optimizer.iterations)} updates. Lower train.learning_rate or set "
            f"train.clip_norm. {_kept(run)}"
        )
    return False


def _shapes(config: Config, prepared: PreparedText) -> tuple[Shape, ...]:
    """Few shapes that hold every pair of training and of validation."""
    train, valid = prepared.train, prepared.valid
    limit = config.data.max_length + 1
    return choose_shapes(
        train.source_lengths,
        train.target_lengths,
        max_tokens=config.train.batch_tokens,
        longest=(
            max(limit, int(valid.source_lengths.max())),
            max(limit, int(valid.target_lengths.max())),
        ),
    )


def _sampled(config: Config, prepared: PreparedText, run: RunFolder) -> SampledStore:
    return SampledStore(
        partial(prepared.corpus.pairs, "train"),
        partial(load_encoders, prepared.tokenizer),
        prepared.train,
        config.tokenizer.sampling,
        config.train.seed,
        run.data / "sampled",
    )


def _kept(run: RunFolder) -> str:
    """What a diverged run leaves."""
    if run.best_model.exists():
        return f"{run.path} keeps the models from before"
    return f"{run.path} has no model: there was no validation before"


def _callbacks(
    config: Config,
    run: RunFolder,
    model: SequenceModel,
    tokenizers: Tokenizers,
    checkpoints: Checkpoints,
    throughput: Throughput,
    began: float,
) -> list[keras.callbacks.Callback]:
    """In order: those that measure, then those that show and keep what was measured."""
    settings = config.train
    scores = TranslationScores(
        Translator(TranslationGraph(model, tokenizers)),
        [Pair(*pair) for pair in run.pairs("valid")],
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
        test_sources = [source for source, _ in run.pairs("test")]
        callbacks.append(TimeLimit(60 * settings.max_minutes, began, scores, test_sources))
    if settings.patience is not None:
        callbacks.append(
            keras.callbacks.EarlyStopping(BEST, mode="max", patience=settings.patience)
        )
    return callbacks


def _take_over(prepared: PreparedText, run: RunFolder) -> None:
    """Copies what a run keeps of its text: all but the training text and its tokens."""
    shutil.copytree(prepared.tokenizer, run.tokenizer)
    run.data.mkdir()
    for part in ("valid", "test"):
        shutil.copyfile(prepared.corpus.text(part), run.text(part))
    shutil.copyfile(prepared.corpus.folder / "report.json", run.corpus_report)
    run.tokens_meta.write_text(json.dumps(asdict(prepared.train.meta)) + "\n", "utf-8")


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
