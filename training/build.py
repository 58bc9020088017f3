"""From a configuration to the model and the optimizer that are trained."""

import keras

from kformer.models import Transformer
from kformer.optimizers import Adam, Muon
from kformer.schedules import InverseSqrtSchedule, LinearSchedule, NoamSchedule
from kformer.text import Tokenizers
from training.config import Config, ModelConfig

# What mixed precision in float16 is usually begun with.
_FIRST_LOSS_SCALE = 2.0**15


def build_model(config: ModelConfig, tokenizers: Tokenizers, dtype: str) -> Transformer:
    """A new model for these vocabularies; its settings are the keys of `config`."""
    return Transformer(
        tokenizers.source.vocab_size, tokenizers.target.vocab_size, **vars(config), dtype=dtype
    )


def build_optimizer(config: Config, dtype: str) -> keras.optimizers.Optimizer:
    """The optimizer and its schedule as `train` asks for them."""
    train = config.train
    if train.schedule == "noam":
        rate = NoamSchedule(config.model.d_model, train.warmup_updates, train.learning_rate)
    elif train.schedule == "inverse_sqrt":
        rate = InverseSqrtSchedule(train.learning_rate, train.warmup_updates)
    else:
        rate = LinearSchedule(train.learning_rate, train.warmup_updates, train.updates)
    options = {
        "global_clipnorm": train.clip_norm,
        "weight_decay": train.weight_decay or None,
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
