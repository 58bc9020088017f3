"""What a run is made of: typed, with every key explained once, here."""

import dataclasses
import difflib
import math
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

import docstring_parser
import jsonargparse
import yaml

from kformer.choices import Activation, NormPosition, Positions, Tying
from kformer.errors import InputError

PRESETS = Path(__file__).resolve().parent / "presets"
DEFAULT_PRESET = "small"
_LARGEST_VOCABULARY = 1_000_000
_MOST_OFTEN = 1000
"""Times an epoch may see a pair."""


@dataclass(frozen=True)
class DataConfig:
    """The parallel text.

    Args:
        train: Training pairs, or a list of several corpora. Each is a file of pairs (.tsv: source
            TAB target; .jsonl, .tmx, .po), SOURCE,TARGET as two files of one line a pair,
            hf:NAME:SPLIT of Hugging Face, or the name of an embedded corpus. Files may end in
            .gz, .xz or .zst; names may hold * and ?.
        valid: Validation pairs, given likewise. Null: those of the embedded corpus, or else cut
            from train by the hash of the source.
        test: Test pairs, given likewise. Null: as for valid.
        weights: How many times an epoch sees the pairs of each corpus of train; 0.5 is half of
            them, others each epoch. Null: once each.
        source_key: What names the source where a format names the sides: a key of JSON lines or
            of Hugging Face rows (dots go down: translation.en), a language of TMX. Null: "source";
            in TMX the language that the file calls its source.
        target_key: Likewise. Null: "target"; in TMX the other language, if there are two.
        max_length: Most tokens a side of a training pair may have; longer pairs are left out.
        strict: Refuse rows that are malformed or have an empty side, by file and line, instead of
            leaving them out.
        static_shapes: Pad batches to at most 8 shapes, for XLA. Costs padding.
        cache: Folder for what is made of a corpus once: its cleaned text, vocabularies and token
            ids. Null: kformer in the user's cache folder.
    """

    train: str | list[str] = "libreoffice-help.en-de"
    valid: str | list[str] | None = None
    test: str | list[str] | None = None
    weights: list[float] | None = None
    source_key: str | None = None
    target_key: str | None = None
    max_length: int = 100
    strict: bool = False
    static_shapes: bool = False
    cache: str | None = None


@dataclass(frozen=True)
class CleaningConfig:
    """What is left out of the training pairs, each time counted and shown with examples.

    Args:
        max_characters: Most characters of a side. Null: any number; data.max_length counts tokens.
        max_length_ratio: How many times as long as the other a side may be, in characters. Null:
            any.
        identical: Leave out pairs whose sides are the same: text that was not translated.
        duplicates: What of a repetition is left out: pair (a pair that came before), source (any
            further translation of a source) or none.
        max_symbols: Largest share of punctuation, symbols and digits in a side, spaces not
            counted. Null: any.
        source_script: Script of the source, by its name in Unicode, or a list: Latin, Cyrillic,
            Arabic, Devanagari, [Han, Hiragana, Katakana]. Null: any.
        target_script: Script of the target, likewise.
        min_script: Smallest share of a side's letters in its script, where one is set.
        numbers: Leave out pairs whose sides hold different numbers.
        placeholders: Leave out pairs whose sides hold different placeholders or markup: {name},
            %s, %1, <b>, &amp;.
        held_out: Leave out pairs whose source occurs in given validation or test text.
    """

    max_characters: int | None = 5000
    max_length_ratio: float | None = 9.0
    identical: bool = True
    duplicates: Literal["none", "pair", "source"] = "pair"
    max_symbols: float | None = 0.5
    source_script: str | list[str] | None = None
    target_script: str | list[str] | None = None
    min_script: float = 0.5
    numbers: bool = False
    placeholders: bool = False
    held_out: bool = True


@dataclass(frozen=True)
class TokenizerConfig:
    """The vocabulary, learned from the training pairs. Letters keep their case.

    Args:
        kind: unigram or bpe (subwords by SentencePiece), character, byte (of UTF-8), or word. No
            text is unknown to any but word. Characters and bytes want a higher data.max_length.
        vocab_size: Most pieces, reserved ones included; no more are made than the text supports.
            Bytes take 260.
        joint: One vocabulary for both languages, or one each.
        min_frequency: Words seen less often are unknown (kind word only).
        sample: Most lines subwords are learned from, drawn at random; memory grows with them.
        sampling: Split the training text another way each epoch (subword regularisation). For bpe
            the share of merges left out, such as 0.1; for unigram the inverse temperature, such as
            0.2: the lower, the more varied. Null: the likeliest way, always.
        file: Use this vocabulary and learn none, whatever kind and vocab_size say: any
            SentencePiece .model, or a run folder, whose own are used. SOURCE,TARGET if not joint.
    """

    kind: Literal["unigram", "bpe", "character", "byte", "word"] = "unigram"
    vocab_size: int = 4000
    joint: bool = True
    min_frequency: int = 2
    sample: int = 500_000
    sampling: float | None = None
    file: str | None = None


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer.

    Args:
        d_model: Width of embeddings and layers; a multiple of num_heads.
        num_heads: Attention heads of each layer.
        d_ff: Width inside the feed-forward networks.
        num_encoder_layers: Depth of the encoder.
        num_decoder_layers: Depth of the decoder.
        norm: pre (normalise before each sub-layer; trains easily) or post (after; the paper).
        activation: Of the feed-forward networks: relu, gelu or swish.
        positions: sinusoidal (the paper), sinusoidal_halves (Marian), learned or none.
        max_length: Number of learned positions, the end token included; null otherwise.
        attention_bias: Add a bias in the projections of attention; the paper has none.
        scale_embedding: Multiply embeddings by the square root of d_model, as in the paper.
        tie: Which tables are one: all (source, target, output; needs a joint vocabulary),
            target (target and output) or none.
        output_bias: Add a bias to the logits.
        dropout: Share of embeddings and sub-layer outputs dropped in training.
        attention_dropout: Share of attention weights dropped in training.
        activation_dropout: Share of feed-forward activations dropped in training.
    """

    d_model: int = 256
    num_heads: int = 4
    d_ff: int = 512
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    norm: NormPosition = "pre"
    activation: Activation = "relu"
    positions: Positions = "sinusoidal"
    max_length: int | None = None
    attention_bias: bool = False
    scale_embedding: bool = True
    tie: Tying = "all"
    output_bias: bool = False
    dropout: float = 0.15
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation.

    Args:
        updates: Length of training, in updates of the weights.
        batch_tokens: Most tokens of a batch on either side, padding included.
        optimizer: adam, or muon (orthogonalised momentum for matrices inside the layers, Adam for
            the rest; learns more from each token).
        learning_rate: Peak of the schedule; with noam, a factor on the paper's.
        schedule: noam (the paper), inverse_sqrt (the same by its peak) or linear (down to 0 at the
            last update).
        warmup_updates: Updates until the peak.
        label_smoothing: Share of the target probability spread over the vocabulary.
        weight_decay: Share of each weight, times the learning rate, taken off at each update.
        clip_norm: Longest global gradient; longer ones are scaled down. Null: never.
        init_from: Run folder whose best model's weights training begins with; its vocabulary is
            used unless tokenizer.file says otherwise. Null: new weights.
        frozen: Patterns (regular expressions) of the weights that are not trained, found in their
            names: embedding, encoder, layer_norm. Null: none.
        accumulate: Into how many parts a batch is divided to need less memory; the update is that
            of the whole batch.
        strategy: none (one device), mirrored (all GPUs of this machine) or multi_worker (several
            machines). A batch is shared out, so the update stays the same.
        validate_every: Updates between validations (loss, BLEU, samples, a checkpoint).
        save_every: Updates between further checkpoints within a round. Null: none.
        keep_checkpoints: How many checkpoints are kept.
        best_by: The figure of a validation that says which model is the best: bleu, chrf or loss.
        patience: Stop after so many validations without a better model. Null: never.
        max_left_out: Stop after so many updates in a row whose gradient is no number; such updates
            never reach the weights.
        max_minutes: Stop in time to be done, test score included, so many minutes after the
            start. Null: never.
        precision: float32, mixed_bfloat16, mixed_float16, or auto: bfloat16 where the hardware
            multiplies it faster (AMX or AVX512-BF16 CPUs, Ampere or newer GPUs).
        jit_compile: Compile training steps with XLA, once for each shape of batch: faster on many
            GPUs, slower on CPUs. Needs data.static_shapes.
        deterministic: Use only operations that repeat bit for bit, also on GPUs; slower there.
        seed: Seed of weights, batches and dropout.
    """

    updates: int = 1950
    batch_tokens: int = 2048
    optimizer: Literal["adam", "muon"] = "muon"
    learning_rate: float = 5e-3
    schedule: Literal["noam", "inverse_sqrt", "linear"] = "linear"
    warmup_updates: int = 100
    label_smoothing: float = 0.1
    weight_decay: float = 0.2
    clip_norm: float | None = None
    init_from: str | None = None
    frozen: list[str] | None = None
    accumulate: int = 1
    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    validate_every: int = 390
    save_every: int | None = None
    keep_checkpoints: int = 3
    best_by: Literal["bleu", "chrf", "loss"] = "bleu"
    patience: int | None = None
    max_left_out: int = 20
    max_minutes: float | None = None
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto"
    jit_compile: bool = False
    deterministic: bool = False
    seed: int = 1


@dataclass(frozen=True)
class ScoringConfig:
    """How translations are scored, by sacreBLEU.

    Args:
        bleu_tokenize: sacreBLEU's tokenizer for BLEU: 13a, zh, ja-mecab, ko-mecab, intl or char.
        samples: How many validation sentences are shown with their translations.
    """

    bleu_tokenize: Literal["13a", "zh", "ja-mecab", "ko-mecab", "intl", "char", "none"] = "13a"
    samples: int = 4


@dataclass(frozen=True)
class Config:
    """A whole run."""

    data: DataConfig = field(default_factory=DataConfig)
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)


SECTIONS = {section.name: section.default_factory for section in dataclasses.fields(Config)}


def add_sections(parser: jsonargparse.ArgumentParser) -> None:
    """Gives a parser an option `--section.key` for every key."""
    for name, section in SECTIONS.items():
        parser.add_argument(f"--{name}", type=section, default=section())


def config_file(preset: str) -> Path:
    """The file of a preset's name, of a run folder, or of a path that ends in .yaml or .yml.

    Raises:
        InputError: there is neither.
    """
    known = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    if preset in known:
        return PRESETS / f"{preset}.yaml"
    path = Path(preset)
    if (path / "config.yaml").is_file():
        return path / "config.yaml"
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"unknown preset {preset!r}{nearest(preset, known)} Presets: {', '.join(known)}; "
            "a configuration file must end in .yaml, a run folder must hold config.yaml"
        )
    if not path.is_file():
        raise InputError(f"{path}: no such configuration file")
    return path


def read_config(path: Path) -> dict[str, Any]:
    """The nested dict in a configuration file, its sections and keys checked.

    Raises:
        InputError: it cannot be read, is no YAML, or has an unknown section or key.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8")) or {}
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be a configuration") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold sections ({', '.join(SECTIONS)}), not a {content!r}")
    for section, keys in content.items():
        if section not in SECTIONS:
            raise InputError(f"{path}: unknown section {section}{nearest(section, SECTIONS)}")
        if keys is None:  # All of its keys are commented out.
            content[section] = keys = {}
        if not isinstance(keys, dict):
            raise InputError(f"{path}: section {section} must hold keys. Received: {keys!r}")
        known = [key.name for key in dataclasses.fields(SECTIONS[section])]
        for key in keys:
            if key not in known:
                raise InputError(f"{path}: unknown key {section}.{key}{nearest(key, known)}")
        _refuse_null(section, keys, f"{path}: ")
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    add_sections(parser)
    try:
        parsed = parser.parse_object(content)
    except (jsonargparse.ArgumentError, TypeError) as error:
        raise InputError(f"{path}: {explain(error)}") from error
    return {
        section: {key: parsed[section][key] for key in keys} for section, keys in content.items()
    }


def explain(error: Exception) -> str:
    """One line for what jsonargparse says in several."""
    message = re.sub(r"\s+", " ", str(error)).strip()
    message = re.sub(r'^Parser key "([^"]+)": ', r"\1: ", message)
    message = re.sub(
        r"Does not validate against any .* Errors: - (.*) Given value type: .* Given value: (.*)$",
        lambda found: f"{found[1].replace(' - Expected', ' or')}. Got value: {found[2]}",
        message,
    )
    return (
        re.sub(r"<class '(\w+)'>", r"\1", message)
        .replace("typing.", "")
        .replace("a NoneType", "null")
    )


def load_config(path: Path) -> Config:
    """The configuration in a file, defaults for what it leaves out.

    Raises:
        InputError: as `read_config` and `check`.
    """
    parsed = read_config(path)
    return check(Config(**{name: SECTIONS[name](**parsed.get(name, {})) for name in SECTIONS}))


def check(config: Config) -> Config:
    """Refuses settings that contradict each other or lie out of range, by the names of their keys.

    Raises:
        InputError: naming the key, what it is and what it has to be.
    """
    for name in SECTIONS:
        _refuse_null(name, vars(getattr(config, name)))
    _check_values(config)
    data, cleaning, tokenizer = config.data, config.cleaning, config.tokenizer
    model, train = config.model, config.train
    for section, key in (
        (data, "max_length"), (cleaning, "max_characters"), (cleaning, "max_length_ratio"),
        (tokenizer, "vocab_size"), (tokenizer, "min_frequency"), (tokenizer, "sample"),
        (model, "d_model"), (model, "num_heads"), (model, "d_ff"), (model, "num_encoder_layers"),
        (model, "num_decoder_layers"), (train, "updates"), (train, "batch_tokens"),
        (train, "warmup_updates"), (train, "validate_every"), (train, "patience"),
        (train, "accumulate"), (train, "save_every"), (train, "keep_checkpoints"),
        (train, "max_left_out"),
    ):  # fmt: skip
        value = getattr(section, key)
        if value is not None and value < 1:
            raise InputError(f"{_name(section)}.{key} must be at least 1. Received: {value}")
    for section, key in (
        (model, "dropout"), (model, "attention_dropout"), (model, "activation_dropout"),
        (train, "label_smoothing"), (train, "weight_decay"),
    ):  # fmt: skip
        value = getattr(section, key)
        if not 0 <= value < 1:
            raise InputError(
                f"{_name(section)}.{key} must be at least 0 and below 1. Received: {value}"
            )
    for section, key in (
        (train, "learning_rate"), (train, "clip_norm"), (train, "max_minutes"),
        (tokenizer, "sampling"),
    ):  # fmt: skip
        value = getattr(section, key)
        if value is not None and not value > 0:
            raise InputError(f"{_name(section)}.{key} must be above 0. Received: {value}")
    for key in ("max_symbols", "min_script"):
        value = getattr(cleaning, key)
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"cleaning.{key} must be from 0 to 1. Received: {value}")
    _check_corpora(data)
    _check_sampling(tokenizer)
    _check_files(tokenizer)
    for section, key in ((train, "seed"), (config.scoring, "samples")):
        value = getattr(section, key)
        if value < 0:
            raise InputError(f"{_name(section)}.{key} must not be negative. Received: {value}")
    if train.jit_compile and not data.static_shapes:
        raise InputError(
            "train.jit_compile needs data.static_shapes: each shape of batch is compiled anew"
        )
    if tokenizer.vocab_size > _LARGEST_VOCABULARY:
        raise InputError(
            f"tokenizer.vocab_size must be at most {_LARGEST_VOCABULARY:,}. "
            f"Received: {tokenizer.vocab_size:,}"
        )
    if train.seed >= 2**32:
        raise InputError(f"train.seed must be below 2**32. Received: {train.seed}")
    if model.d_model % model.num_heads:
        raise InputError(
            "model.d_model must be a multiple of model.num_heads. "
            f"Received: {model.d_model} and {model.num_heads}"
        )
    if model.positions.startswith("sinusoidal") and model.d_model % 2:
        raise InputError(
            f"model.d_model must be even for sinusoidal positions. Received: {model.d_model}"
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
    if train.schedule == "linear" and train.updates <= train.warmup_updates:
        raise InputError(
            "train.updates must be more than train.warmup_updates for a linear schedule. "
            f"Received: {train.updates} and {train.warmup_updates}"
        )
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


def _check_files(tokenizer: TokenizerConfig) -> None:
    two = tokenizer.file is not None and not tokenizer.joint
    if two and tokenizer.file.count(",") != 1 and not Path(tokenizer.file).is_dir():
        raise InputError(
            "tokenizer.file must be SOURCE,TARGET or a run folder where tokenizer.joint is false. "
            f"Received: {tokenizer.file!r}"
        )


def _check_sampling(tokenizer: TokenizerConfig) -> None:
    if tokenizer.sampling is None:
        return
    if tokenizer.file is None and tokenizer.kind not in ("unigram", "bpe"):
        raise InputError(
            f"tokenizer.sampling needs tokenizer.kind unigram or bpe. Received: {tokenizer.kind}"
        )
    if tokenizer.sampling > 1:
        raise InputError(f"tokenizer.sampling must be at most 1. Received: {tokenizer.sampling}")


def _refuse_null(section: str, keys: dict[str, Any], where: str = "") -> None:
    """Null is for keys whose type has it."""
    types = get_type_hints(SECTIONS[section])
    for key, value in keys.items():
        if value is None and NoneType not in get_args(types[key]):
            raise InputError(f"{where}{section}.{key} must not be null")


MAY_CHANGE = {
    "data.cache", "train.updates", "train.save_every", "train.keep_checkpoints", "train.patience",
    "train.max_left_out", "train.max_minutes", "train.accumulate", "train.strategy",
    "scoring.samples",
}  # fmt: skip
"""Keys that a run may go on with other values of."""


def differences(old: Config, new: Config) -> list[str]:
    """Where a run that goes on would be another: each key with both values."""
    found = []
    for section in SECTIONS:
        for key in dataclasses.fields(SECTIONS[section]):
            before, after = (getattr(getattr(config, section), key.name) for config in (old, new))
            name = f"{section}.{key.name}"
            # A run knows what `auto` became.
            same = before == after or (name == "train.precision" and after == "auto")
            if not same and name not in MAY_CHANGE:
                found.append(f"{name} {before!r}, here {after!r}")
    return found


def to_yaml(config: Config) -> str:
    """The configuration as YAML that explains itself: each key under its meaning."""
    lines = []
    for section, section_type in SECTIONS.items():
        documented = docstring_parser.parse(section_type.__doc__)
        meanings = {param.arg_name: param.description for param in documented.params}
        lines += [f"# {documented.short_description}", f"{section}:"]
        for key, value in dataclasses.asdict(getattr(config, section)).items():
            lines += [f"  # {line}" for line in textwrap.wrap(meanings[key], 92)]
            # Lists on one line, too.
            flow = None if isinstance(value, list) else False
            entry = yaml.safe_dump(
                {key: value}, allow_unicode=True, width=math.inf, default_flow_style=flow
            )
            lines.append(f"  {entry.strip()}")
        lines.append("")
    return "\n".join(lines)


def nearest(word: str, known) -> str:
    """How a sentence on a wrong name ends: with the nearest right one, if any is near."""
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else "."


def _name(section) -> str:
    return next(name for name, kind in SECTIONS.items() if isinstance(section, kind))
