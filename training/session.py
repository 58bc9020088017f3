"""One training run from configuration to final score."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import keras
import tensorflow as tf

from kformer import plots
from kformer.errors import InputError
from kformer.generation import GenerationGraph, Generator
from kformer.graph import TranslationGraph
from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models.base import SequenceModel
from kformer.perplexity import perplexity
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers
from training.board import write_embeddings, write_settings
from training.build import begin_with, build_model, build_optimizer, build_search, freeze
from training.callbacks.measure import memory_gigabytes
from training.callbacks.progress import clock
from training.callbacks.stopping import TrainingInterrupt
from training.checkpoints import Checkpoint, latest_checkpoint
from training.config import Config, ScoringConfig, to_yaml
from training.data.prepare import PreparedText
from training.devices import Devices
from training.fit import Fit
from training.folders import making_folder
from training.precision import resolve_precision
from training.recipe import write_recipe
from training.scoring import score_run
from training.vectors import begin_with_vectors, read_vectors


def train(
    config: Config,
    prepared: PreparedText,
    folder: Path,
    began: float,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> int:
    """Makes a run folder, or goes on with one: trains, and scores the best model on the test.

    Args:
        config: what to train.
        prepared: the text, made with this configuration.
        folder: the run folder.
        began: when the run started, by `time.perf_counter`.
        overwrite: whether to replace one that exists, once all of the new run is there.
        resume: whether to go on with the one that exists.

    Returns:
        Exit status: 0, or 130 if interrupted.

    Raises:
        InputError: the run folder cannot be made, and nothing is left behind; or it cannot be gone
            on with; or training diverged.
    """
    # Seeding frees every tokenizer alive, so it comes before the first is made.
    keras.utils.set_random_seed(config.train.seed)
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    devices = Devices(config.train.strategy)
    with contextlib.ExitStack() as stack:
        if not devices.is_chief:
            # Others do the same, but what they would write or print the chief does.
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        run = RunFolder(folder)
        checkpoint = _checkpoint(run, config, prepared) if resume else None
        if not resume:
            dtype = resolve_precision(config.train.precision)
            config = replace(config, train=replace(config.train, precision=dtype))
        # Before the folder is made: nothing is left behind if something does not fit.
        tokenizers = Tokenizers.load(prepared.tokenizer)
        model, metrics = _make_model(config, tokenizers, devices)
        if checkpoint is None:
            _begin(model, config, prepared)
        if not devices.is_chief:
            run = RunFolder(stack.enter_context(tempfile.TemporaryDirectory()))
            _fill(run, config, prepared)
        elif not resume:
            with making_folder(folder, overwrite) as made:
                _fill(RunFolder(made), config, prepared)
        else:
            beside = run.config.with_name(f".{run.config.name}.partial")
            beside.write_text(to_yaml(config), "utf-8")
            os.replace(beside, run.config)
        print(f"model       {model.count_params():,} parameters, {config.train.precision}")
        print(f"device      {devices}")
        fit = Fit(config, run, model, metrics, tokenizers, prepared, devices, began)
        if checkpoint is not None:
            fit.restore(checkpoint)
            print(f"goes on from {checkpoint.path}")
        if devices.is_chief and not resume:
            write_settings(fit.writer, config, folder.resolve().name)
            if plots.can_draw():
                write_recipe(fit.writer, config, fit.model)
        print(f"run folder  {folder}, tensorboard --logdir {run.logs}\n", flush=True)
        return _train(config, run, folder, fit, devices, began)


def _make_model(
    config: Config, tokenizers: Tokenizers, devices: Devices
) -> tuple[SequenceModel, list[keras.metrics.Metric]]:
    """A new model, ready for `fit`, and its metrics."""
    dtype = config.train.precision
    with devices.strategy.scope():
        model = build_model(config.model, tokenizers, dtype)
        freeze(model, config.train.frozen or ())
        metrics = [TokenAccuracy(), Perplexity()]
        model.compile(
            build_optimizer(config, dtype),
            MaskedCrossEntropy(config.train.label_smoothing),
            metrics=metrics,
            jit_compile=config.train.jit_compile,
            auto_scale_loss=False,  # The optimizer does.
        )
        model.optimizer.build(model.trainable_weights)
    model.accumulate = config.train.accumulate
    return model, metrics


def _begin(model: SequenceModel, config: Config, prepared: PreparedText) -> None:
    """Gives a new model what it is to begin with."""
    if config.train.init_from is not None:
        begin_with(model, RunFolder.open(config.train.init_from))
        print(f"begins with {config.train.init_from}")
    vectors = read_vectors(config, prepared)
    begin_with_vectors(model, vectors)
    for side, (_, coverage) in vectors.items():
        print(f"vectors     {side}: {coverage}")


def _train(
    config: Config, run: RunFolder, folder: Path, fit: Fit, devices: Devices, began: float
) -> int:
    try:
        # Of a run that goes on, the score alone may be missing.
        fit()
        interrupt = None
    except TrainingInterrupt as error:
        interrupt = error
    print(
        f"\ntrained     {int(fit.model.optimizer.iterations.numpy()):,} updates, "
        f"{fit.throughput.average:,.0f} target tokens/s, peak memory {memory_gigabytes():.1f} GB"
    )
    if interrupt is not None:
        print(
            f"stopped by {interrupt}; go on with python -m training.run {folder} --resume. What "
            "was learned so far can be used"
        )
        return 130 if interrupt.signal_number == signal.SIGINT else 0
    if not devices.is_chief:
        return 0
    model, tokenizers = run.load()
    if run.of_lines:
        generator = Generator(GenerationGraph(model, tokenizers))
        scores = perplexity(generator, [line for _, line in run.pairs("test")])
        how, use = "", "write      python -m kformer.generate"
    else:
        graph = TranslationGraph(model, tokenizers, build_search(config.scoring))
        _, scores = score_run(run, config.scoring, graph=graph)
        how, use = f", {_named(config.scoring)}", "translate  python -m kformer.translate"
    write_embeddings(run, model, tokenizers)
    if plots.can_draw():
        rounds = [json.loads(line) for line in run.metrics.read_text("utf-8").splitlines()]
        plots.save(plots.curves({folder.name: rounds}), run.curves)
    run.scores.write_text(json.dumps(asdict(scores), indent=2) + "\n", "utf-8")
    print(f"\nbest model on the test text{how}:\n{scores}")
    print(f"\ndone in {clock(time.perf_counter() - began)}. In {folder}:")
    print("  best/model.keras  metrics.jsonl  samples.txt  scores.json  logs/  config.yaml")
    print(f"  {use} {folder} [FILE]")
    print(f"  score      python -m training.evaluate {folder}")
    print(
        f"  curves     {'curves.png, ' if plots.can_draw() else ''}tensorboard --logdir {run.logs}"
    )
    return 0


def _named(scoring: ScoringConfig) -> str:
    if scoring.beam_size == 1:
        return "greedy search"
    penalty = f", length penalty {scoring.length_penalty:g}" if scoring.length_penalty else ""
    return f"beam of {scoring.beam_size}{penalty}"


def _checkpoint(run: RunFolder, config: Config, prepared: PreparedText) -> Checkpoint | None:
    """What a run goes on from; None: there is nothing yet.

    Raises:
        InputError: it is trained to its end, or its text is not what it was.
    """
    known = json.loads(run.tokens_meta.read_text("utf-8"))["fingerprint"]
    if known != prepared.train.meta.fingerprint:
        raise InputError(
            f"{run.path}: cannot go on, the training text is not what it was. Bring it back, or "
            "start a new run"
        )
    checkpoint = latest_checkpoint(run.checkpoints)
    done = checkpoint is not None and checkpoint.state["update"] >= config.train.updates
    if done and run.scores.is_file():
        raise InputError(
            f"{run.path}: is trained for {checkpoint.state['update']:,} updates already. To go on, "
            f"raise train.updates. Received: {config.train.updates:,}"
        )
    return checkpoint


def _fill(run: RunFolder, config: Config, prepared: PreparedText) -> None:
    """Writes what a run keeps of its text, all but the training text and its tokens, and how it
    was configured."""
    shutil.copytree(prepared.tokenizer, run.tokenizer)
    run.data.mkdir()
    for part in ("valid", "test"):
        shutil.copyfile(prepared.corpus.text(part), run.text(part))
    shutil.copyfile(prepared.corpus.folder / "report.json", run.corpus_report)
    run.tokens_meta.write_text(json.dumps(asdict(prepared.train.meta)) + "\n", "utf-8")
    run.config.write_text(to_yaml(config), "utf-8")
