"""From a configuration to the model, the optimizer and the search that it asks for."""

import inspect
import re
from collections.abc import Sequence

import keras

from kformer.errors import InputError
from kformer.models import KINDS
from kformer.models.base import SequenceModel
from kformer.optimizers import Adam, Muon
from kformer.run_folder import RunFolder
from kformer.schedules import InverseSqrtSchedule, LinearSchedule, NoamSchedule
from kformer.search import Beam, Greedy, Search
from kformer.text import Tokenizers
from training.config import Config, ModelConfig, ScoringConfig

# What mixed precision in float16 is usually begun with.
_FIRST_LOSS_SCALE = 2.0**15


def build_model(config: ModelConfig, tokenizers: Tokenizers, dtype: str) -> SequenceModel:
    """A new model for these vocabularies; its settings are the keys of `config` that it knows."""
    kind = KINDS[config.kind]
    sizes = {
        "source_vocab_size": tokenizers.source.vocab_size,
        "target_vocab_size": tokenizers.target.vocab_size,
        "vocab_size": tokenizers.target.vocab_size,
    }
    known = inspect.signature(kind).parameters
    settings = {name: value for name, value in (sizes | vars(config)).items() if name in known}
    return kind(**settings, dtype=dtype)


def begin_with(model: SequenceModel, run: RunFolder) -> None:
    """Gives a new model the weights of a run's best.

    Raises:
        InputError: they are of other shapes.
    """
    weights = run.load_model().get_weights()
    if [weight.shape for weight in weights] != [tuple(own.shape) for own in model.weights]:
        raise InputError(
            f"train.init_from: {run.path}: its model has other weights than model.* asks for; its "
            f"settings are in {run.config}"
        )
    model.set_weights(weights)


def freeze(model: SequenceModel, patterns: Sequence[str]) -> None:
    """Leaves weights out of training.

    Args:
        model: whose weights.
        patterns: regular expressions, found anywhere in the names of the weights.

    Raises:
        InputError: a pattern is none, or is found in no name; or nothing is left to train.
    """
    for pattern in patterns:
        try:
            found = [weight for weight in model.weights if re.search(pattern, weight.path)]
        except re.error as error:
            raise InputError(f"train.frozen: {pattern!r} is no pattern ({error})") from error
        if not found:
            names = ", ".join(weight.path for weight in model.weights[:3])
            raise InputError(f"train.frozen: {pattern!r} is in no weight's name, such as {names}")
        for weight in found:
            weight.trainable = False
    if not model.trainable_weights:
        raise InputError(f"train.frozen: leaves nothing to train. Received: {list(patterns)}")


def build_search(config: ScoringConfig) -> Search:
    """The search that translations are scored by."""
    if config.beam_size == 1:
        return Greedy()
    return Beam(size=config.beam_size, length_penalty=config.length_penalty)


def build_schedule(config: Config) -> keras.optimizers.schedules.LearningRateSchedule:
    """The learning rate of each update, as `train` asks for it."""
    train = config.train
    if train.schedule == "noam":
        return NoamSchedule(config.model.d_model, train.warmup_updates, train.learning_rate)
    if train.schedule == "inverse_sqrt":
        return InverseSqrtSchedule(train.learning_rate, train.warmup_updates)
    return LinearSchedule(train.learning_rate, train.warmup_updates, train.updates)


def build_optimizer(config: Config, dtype: str) -> keras.optimizers.Optimizer:
    """The optimizer and its schedule as `train` asks for them."""
    train, rate = config.train, build_schedule(config)
    options = {
        "global_clipnorm": train.clip_norm,
        "weight_decay": train.weight_decay or None,
        "average_decay": train.ema,
        "loss_scale": _FIRST_LOSS_SCALE if dtype == "mixed_float16" else None,
    }
    if train.optimizer == "adam":
        return Adam(rate, **options)
    return Muon(
        rate,
        # Five are published. Three orthogonalise well enough, for a sixth less of an update's time.
        iterations_newton_schulz=3,
        compute_dtype="bfloat16" if dtype == "mixed_bfloat16" else "float32",
        **options,
    )
