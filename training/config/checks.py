"""Settings that contradict each other or lie out of range, told by the names of their keys."""

import math
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from kformer.errors import InputError
from training.config.keys import SECTIONS, Config, DataConfig, ModelConfig, TokenizerConfig

_LARGEST_VOCABULARY = 1_000_000
_MOST_OFTEN = 1000
"""Times an epoch may see a pair."""


# Ranges of numbers, by the names of their keys; null is in all of them.
_AT_LEAST_1 = (
    "data.max_length", "cleaning.max_characters", "cleaning.max_length_ratio",
    "tokenizer.vocab_size", "tokenizer.min_frequency", "tokenizer.sample", "model.d_model",
    "model.embedding_dim", "model.num_heads", "model.d_ff", "model.num_encoder_layers",
    "model.num_decoder_layers", "train.updates", "train.batch_tokens", "train.warmup_updates",
    "train.validate_every", "train.patience", "train.accumulate", "train.save_every",
    "train.keep_checkpoints", "train.max_left_out", "train.profile_updates", "scoring.beam_size",
)  # fmt: skip
_SHARES = (
    "model.dropout", "model.attention_dropout", "model.activation_dropout",
    "train.label_smoothing", "train.weight_decay", "train.ema",
)  # fmt: skip
_ABOVE_0 = ("train.learning_rate", "train.clip_norm", "train.max_minutes", "tokenizer.sampling")
_FROM_0_TO_1 = ("cleaning.max_symbols", "cleaning.min_script")
_NOT_NEGATIVE = ("train.seed", "train.keep_best", "scoring.samples")
_RANGES = (
    (_AT_LEAST_1, lambda value: value >= 1, "be at least 1"),
    (_SHARES, lambda value: 0 <= value < 1, "be at least 0 and below 1"),
    (_ABOVE_0, lambda value: value > 0, "be above 0"),
    (_FROM_0_TO_1, lambda value: 0 <= value <= 1, "be from 0 to 1"),
    (_NOT_NEGATIVE, lambda value: value >= 0, "not be negative"),
)

# Keys of the model that only some kinds read.
_ONLY_OF = {
    "recurrent": {"cell", "bidirectional", "input_feeding"},
    "transformer or language_model": {
        "num_heads", "d_ff", "norm", "activation", "positions", "max_length", "attention_bias",
        "scale_embedding", "attention_dropout", "activation_dropout",
    },
    "transformer or recurrent": {"num_encoder_layers"},
}  # fmt: skip


def foreign_keys(kind: str) -> dict[str, str]:
    """The keys of the section `model` that a kind of model does not read, and which kinds do."""
    return {
        key: kinds
        for kinds, keys in _ONLY_OF.items()
        if kind not in kinds.split(" or ")
        for key in sorted(keys)
    }


def check(config: Config) -> Config:
    """Refuses settings that contradict each other or lie out of range, by the names of their keys.

    Raises:
        InputError: naming the key, what it is and what it has to be.
    """
    for name in SECTIONS:
        refuse_null(name, vars(getattr(config, name)))
    _check_values(config)
    for keys, is_valid, rule in _RANGES:
        for key in keys:
            section, _, name = key.partition(".")
            value = getattr(getattr(config, section), name)
            if value is not None and not is_valid(value):
                raise InputError(f"{key} must {rule}. Received: {value}")
    _check_corpora(config.data)
    _check_tokenizer(config.tokenizer)
    _check_model(config)
    _check_training(config)
    return config


def _check_values(config: Config) -> None:
    """What holds for every key: finite numbers that machines can count to, and names of files."""
    for name in SECTIONS:
        for key, value in vars(getattr(config, name)).items():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, float) and not math.isfinite(item):
                    raise InputError(f"{name}.{key} must be a finite number. Received: {value}")
                if isinstance(item, int) and key != "seed" and abs(item) >= 2**31:
                    raise InputError(f"{name}.{key} must be below 2**31. Received: {value}")
                if isinstance(item, str) and (not item or "\0" in item):
                    raise InputError(f"{name}.{key} must be a name. Received: {value!r}")
            if value == []:
                raise InputError(f"{name}.{key} must not be an empty list")


def _check_corpora(data: DataConfig) -> None:
    for key in ("train", "valid", "test"):
        corpora = getattr(data, key)
        if isinstance(corpora, list) and len(set(corpora)) < len(corpora):
            raise InputError(
                f"data.{key} must name each corpus once (data.weights repeats them). "
                f"Received: {corpora}"
            )
    if data.weights is None:
        return
    corpora = [data.train] if isinstance(data.train, str) else data.train
    if len(data.weights) != len(corpora):
        raise InputError(
            "data.weights must hold a number for each corpus of data.train. "
            f"Received: {len(data.weights)} for {len(corpora)}"
        )
    if not all(0 < weight <= _MOST_OFTEN for weight in data.weights):
        raise InputError(
            f"data.weights must be above 0 and at most {_MOST_OFTEN}. Received: {data.weights}"
        )


def _check_tokenizer(tokenizer: TokenizerConfig) -> None:
    if tokenizer.vocab_size > _LARGEST_VOCABULARY:
        raise InputError(
            f"tokenizer.vocab_size must be at most {_LARGEST_VOCABULARY:,}. "
            f"Received: {tokenizer.vocab_size:,}"
        )
    two = tokenizer.file is not None and not tokenizer.joint
    if two and tokenizer.file.count(",") != 1 and not Path(tokenizer.file).is_dir():
        raise InputError(
            "tokenizer.file must be SOURCE,TARGET or a run folder where tokenizer.joint is false. "
            f"Received: {tokenizer.file!r}"
        )
    if tokenizer.sampling is None:
        return
    if tokenizer.file is None and tokenizer.kind not in ("unigram", "bpe"):
        raise InputError(
            f"tokenizer.sampling needs tokenizer.kind unigram or bpe. Received: {tokenizer.kind}"
        )
    if tokenizer.sampling > 1:
        raise InputError(f"tokenizer.sampling must be at most 1. Received: {tokenizer.sampling}")


def _check_model(config: Config) -> None:
    data, tokenizer, model = config.data, config.tokenizer, config.model
    usual = ModelConfig()
    for key, kinds in foreign_keys(model.kind).items():
        value = getattr(model, key)
        if value != getattr(usual, key):
            raise InputError(
                f"model.{key} is for model.kind {kinds}, not {model.kind}. Received: {value}"
            )
    if model.attention == "none" and model.kind != "recurrent":
        raise InputError(f"model.attention none is for model.kind recurrent, not {model.kind}")
    if model.input_feeding and model.attention == "none":
        raise InputError("model.input_feeding feeds what attention gives: set model.attention")
    if model.kind == "language_model" and not (tokenizer.joint and model.tie != "target"):
        raise InputError(
            "model.kind language_model has one vocabulary: set tokenizer.joint to true, and "
            "model.tie to all or none"
        )
    if model.embedding_dim not in (None, model.d_model) and model.tie != "none":
        raise InputError(
            "model.embedding_dim other than model.d_model needs model.tie none. "
            f"Received: {model.embedding_dim}, {model.d_model} and {model.tie}"
        )
    if model.kind != "recurrent" and model.d_model % model.num_heads:
        raise InputError(
            "model.d_model must be a multiple of model.num_heads. "
            f"Received: {model.d_model} and {model.num_heads}"
        )
    if model.kind != "recurrent" and model.positions.startswith("sinusoidal") and model.d_model % 2:
        raise InputError(
            f"model.d_model must be even for sinusoidal positions. Received: {model.d_model}"
        )
    if model.kind == "recurrent" and model.bidirectional and model.d_model % 2:
        raise InputError(
            f"model.d_model must be even with model.bidirectional. Received: {model.d_model}"
        )
    if model.positions == "rotary" and model.d_model // model.num_heads % 2:
        raise InputError(
            "model.d_model / model.num_heads must be even for rotary positions. "
            f"Received: {model.d_model} / {model.num_heads}"
        )
    if model.positions == "rotary" and model.attention != "dot_product":
        raise InputError(
            f"model.positions rotary needs model.attention dot_product. Received: {model.attention}"
        )
    if model.positions == "learned" and (model.max_length or 0) <= data.max_length:
        raise InputError(
            "model.max_length must be more than data.max_length (the end token takes a position) "
            f"for learned positions. Received: {model.max_length} and {data.max_length}"
        )
    if model.tie == "all" and not tokenizer.joint:
        raise InputError(
            "model.tie all needs one vocabulary for both languages: set tokenizer.joint to true, "
            "or model.tie to target or none"
        )


def _check_training(config: Config) -> None:
    train = config.train
    if train.jit_compile and not config.data.static_shapes:
        raise InputError(
            "train.jit_compile needs data.static_shapes: each shape of batch is compiled anew"
        )
    if train.jit_compile and train.strategy != "none":
        raise InputError(
            f"train.jit_compile is for one device. Received: train.strategy {train.strategy}"
        )
    if train.init_from is not None and (train.source_vectors or train.target_vectors):
        raise InputError(
            "train.init_from begins with trained embeddings, which train.source_vectors and "
            "train.target_vectors would replace: give one of them"
        )
    if train.seed >= 2**32:
        raise InputError(f"train.seed must be below 2**32. Received: {train.seed}")
    if train.schedule == "linear" and train.updates <= train.warmup_updates:
        raise InputError(
            "train.updates must be more than train.warmup_updates for a linear schedule: raise the "
            f"one or lower the other. Received: {train.updates} and {train.warmup_updates}"
        )
    if train.source_vectors is not None and config.model.kind == "language_model":
        raise InputError(
            "train.source_vectors: model.kind language_model has one embedding, which "
            "train.target_vectors is for"
        )
    if train.source_vectors is not None and config.model.tie == "all":
        raise InputError(
            "train.source_vectors needs an embedding of the source: set model.tie to target or none"
        )
    if config.scoring.length_penalty and config.scoring.beam_size == 1:
        raise InputError("scoring.length_penalty needs scoring.beam_size of at least 2")


def refuse_null(section: str, keys: dict[str, Any], where: str = "") -> None:
    """Null is for keys whose type has it."""
    types = get_type_hints(SECTIONS[section])
    for key, value in keys.items():
        if value is None and NoneType not in get_args(types[key]):
            raise InputError(f"{where}{section}.{key} must not be null")
