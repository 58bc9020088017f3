"""The updates of a run, from wherever it is to its end."""

import math
from collections.abc import Callable
from functools import partial

import keras
import tensorflow as tf

from kformer import plots
from kformer.errors import InputError
from kformer.generation import GenerationGraph, Generator
from kformer.graph import TranslationGraph
from kformer.models.base import SequenceModel
from kformer.perplexity import perplexity
from kformer.run_folder import RunFolder
from kformer.search import Greedy
from kformer.text import Tokenizers
from kformer.translator import Translator
from training.build import build_search
from training.callbacks.averages import Averages
from training.callbacks.best import Best
from training.callbacks.keep import Files, Keeper
from training.callbacks.measure import Throughput, TranslationScores
from training.callbacks.metrics_file import MetricsFile
from training.callbacks.pictures import AttentionPictures
from training.callbacks.profile import Profile
from training.callbacks.progress import Progress
from training.callbacks.samples import Continuations, Samples, Translations
from training.callbacks.stopping import (
    FiniteGuard,
    PatienceLimit,
    Signals,
    TimeLimit,
    UpdateLimit,
)
from training.callbacks.tensorboard import TensorBoardLog
from training.checkpoints import Checkpoint
from training.config import Config
from training.data.batches import TrainingBatches, evaluation_batches
from training.data.encoding import load_encoders
from training.data.prepare import PreparedText
from training.data.rows import Pair
from training.data.sampling import SampledStore
from training.data.shapes import Shape, choose_shapes
from training.devices import Devices

_BEST = {"bleu": ("val_bleu", True), "chrf": ("val_chrf", True), "loss": ("val_loss", False)}

# What TensorFlow raises where another worker does not answer.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


class Fit:
    """Trains a model in a run folder.

    Args:
        config: what to train.
        run: where it is kept.
        model: compiled with `metrics`, its optimizer built.
        metrics: the training metrics of `compile`.
        tokenizers: of the run.
        prepared: its text.
        devices: what it runs on.
        began: when the run started, by `time.perf_counter`.

    Attributes:
        writer: of TensorBoard's event files.
        throughput: measures speed.
        keeper: saves checkpoints.
    """

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        model: SequenceModel,
        metrics: list[keras.metrics.Metric],
        tokenizers: Tokenizers,
        prepared: PreparedText,
        devices: Devices,
        began: float,
    ):
        self.config = config
        self.run = run
        self.model = model
        self.prepared = prepared
        self.devices = devices
        self.throughput = Throughput()
        self._shapes = _shapes(config, prepared) if config.data.static_shapes else None
        self._store = prepared.train
        if config.tokenizer.sampling is not None:
            self._store = _sampled(config, prepared, run)
        self._batches = TrainingBatches(
            self._store,
            max_tokens=config.train.batch_tokens,
            seed=config.train.seed,
            corpus_pairs=prepared.train.meta.corpus_pairs,
            weights=config.data.weights,
            shapes=self._shapes,
        )
        settings = config.train
        # One for all: where several write beside each other, TensorBoard follows the newest only.
        self.writer = tf.summary.create_file_writer(str(run.logs))
        measuring, samples, measure = self._make_measuring(tokenizers)
        of_lines = prepared.train.meta.of_lines
        metrics_file = MetricsFile(run)
        best = Best(run, *_BEST[settings.best_by or ("loss" if of_lines else "bleu")])
        self.keeper = Keeper(
            run,
            best,
            [model.token_loss, *metrics],
            {
                "throughput": self.throughput,
                "files": Files(run),
                "batches": self._batches,
                "samples": samples,
                "metrics": metrics_file,
            },
            settings.validate_every,
            settings.save_every,
            settings.keep_checkpoints,
            settings.keep_best,
        )
        for callback in (best, self.keeper):
            callback.set_model(model)
        # In order: those that measure, then those that keep and show what was measured.
        self._callbacks = [
            UpdateLimit(settings.updates),
            self.throughput,
            *measuring,
            metrics_file,
            best,
            TensorBoardLog(self.writer, samples),
            *([Averages()] if settings.ema is not None else []),
            self.keeper,
            FiniteGuard(
                settings.max_left_out,
                self.batch_at,
                lambda ids: [text.decode() for text in tokenizers.source.detokenize(ids).numpy()],
                self.keeper,
            ),
            Progress(settings.updates, samples, best),
        ]
        self._closing = [self.writer]
        if settings.profile_updates is not None:
            profile = Profile(run, settings.profile_updates)
            self._callbacks.append(profile)
            self._closing.append(profile)
        if settings.max_minutes is not None:
            texts = (
                # What is measured of lines of one language is the lines.
                [source or target for source, target in run.pairs(part)]
                for part in ("valid", "test")
            )
            self._callbacks.append(TimeLimit(60 * settings.max_minutes, began, measure, *texts))
        if settings.patience is not None:
            self._callbacks.append(PatienceLimit(settings.patience, best))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint.

        Raises:
            InputError: it is of another model.
        """
        self.keeper.restore(checkpoint)

    def __call__(self) -> None:
        """Trains to the end, where that is not reached.

        Raises:
            TrainingInterrupt: a signal ended it; a checkpoint is saved.
            InputError: it diverged or ran out of memory; earlier checkpoints are kept.
        """
        keeper, settings = self.keeper, self.config.train
        # `UpdateLimit` ends training; updates that are left out take batches, too.
        rounds = 2 * math.ceil(settings.updates / settings.validate_every)
        try:
            if int(self.model.optimizer.iterations.numpy()) >= settings.updates:
                return
            with Signals(keeper, self.devices.any_of) as signals:
                done = keeper.batches % settings.validate_every
                if done:
                    # What is left of the round that the checkpoint is from.
                    self._fit(1, settings.validate_every - done, signals)
                if not done or not self.model.stop_training:
                    self._fit(rounds, settings.validate_every, signals)
        except tf.errors.ResourceExhaustedError as error:
            (source, target), _ = self.batch_at(keeper.batches)
            raise InputError(
                f"out of memory at a batch of {source.shape} source and {target.shape} target "
                "positions: lower train.batch_tokens, or raise train.accumulate. Checkpoints "
                "from before are kept"
            ) from error
        except _LOST as error:
            if not self.devices.several_workers:
                raise
            raise InputError(
                "another worker is gone or cannot be reached, so this one stops. Start all of "
                f"them again to go on from the last checkpoint ({type(error).__name__})"
            ) from error
        finally:
            for own in self._closing:
                own.close()
            if self._store is not self.prepared.train:
                self._store.close()

    def batch_at(self, number: int) -> tuple:
        """The whole batch of a number, from 0, as training is given it."""
        return next(self._batches.dataset(number).as_numpy_iterator())

    def _fit(self, rounds: int, round_batches: int, signals: Signals) -> None:
        first = self.keeper.batches // self.config.train.validate_every
        valid = partial(
            evaluation_batches,
            self.prepared.valid,
            max_tokens=self.config.train.batch_tokens,
            shapes=self._shapes,
        )
        self.model.fit(
            self.devices.distribute(
                lambda shares: self._batches.dataset(self.keeper.batches, shares)
            ),
            validation_data=self.devices.distribute(lambda shares: valid(shares=shares)),
            validation_steps=int(valid().cardinality()),
            steps_per_epoch=round_batches,
            initial_epoch=first,
            epochs=first + rounds,
            callbacks=[*self._callbacks, signals],
            shuffle=False,
            verbose=0,
        )

    def _make_measuring(
        self, tokenizers: Tokenizers
    ) -> tuple[list[keras.callbacks.Callback], Samples, Callable]:
        """The callbacks that measure the validation text, the one of them that has samples, and
        what takes the time."""
        model, run, scoring = self.model, self.run, self.config.scoring
        pairs = [Pair(*pair) for pair in run.pairs("valid")]
        if self.prepared.train.meta.of_lines:
            generator = Generator(GenerationGraph(model, tokenizers, Greedy()))
            lines = [pair.target for pair in pairs]
            samples = Continuations(generator, lines, run, scoring.samples)
            return [samples], samples, partial(perplexity, generator)
        translator = Translator(TranslationGraph(model, tokenizers, build_search(scoring)))
        scores = TranslationScores(translator, pairs, scoring.bleu_tokenize)
        samples = Translations(scores, run, scoring.samples)
        measuring = [scores, samples]
        # What the other workers draw nobody would see.
        if model.attention_shape[0] and self.devices.is_chief and plots.can_draw():
            measuring.append(AttentionPictures(self.writer, translator, samples))
        return measuring, samples, translator.translate


def _shapes(config: Config, prepared: PreparedText) -> tuple[Shape, ...]:
    """Few shapes that hold every pair of training and of validation."""
    train, valid = prepared.train, prepared.valid
    limit = config.data.max_length + 1
    # The source of a line is its end token.
    source_limit = 1 if train.meta.of_lines else limit
    return choose_shapes(
        train.source_lengths,
        train.target_lengths,
        max_tokens=config.train.batch_tokens,
        longest=(
            max(source_limit, int(valid.source_lengths.max())),
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
