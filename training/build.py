"""From a configuration to what training needs: vocabulary, token stores and the model."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import keras

from kformer.errors import InputError
from kformer.models import Transformer
from kformer.optimizers import Adam, Muon
from kformer.run_folder import RunFolder
from kformer.schedules import InverseSqrtSchedule, LinearSchedule, NoamSchedule
from kformer.text import SentencePieceTokenizer, Tokenizer, Tokenizers, WordTokenizer
from training.config import Config, ModelConfig, TokenizerConfig
from training.data.corpus import CorpusReport, read_pairs
from training.data.rows import Pair
from training.data.splits import Corpus, Part
from training.data.store import TokenStore, build_store

# Validation pairs are not left out for their length; this only bounds a line gone wrong, whose
# attention weights would fill the memory.
_LONGEST_SCORED = 2_000
# Most lines a vocabulary is learned from: a sample as large gives the same pieces for all that
# matters, and more would not fit into memory.
_LEARNED_FROM = 2_000_000
# Seconds between signs of life on a large corpus.
_PAUSE = 10.0


@dataclass(frozen=True)
class PreparedText:
    """The corpus as training uses it; all of it lies in the run folder."""

    tokenizers: Tokenizers
    train: TokenStore
    valid: TokenStore
    reports: dict[Part, CorpusReport]


def prepare_text(config: Config, run: RunFolder) -> PreparedText:
    """Reads the corpus, learns the vocabulary and tokenises, all into a run folder being made.

    Raises:
        InputError: the corpus cannot be read or nothing is left of it.
    """
    corpus = Corpus(config.data.train, config.data.valid, config.data.test)
    reports: dict[Part, CorpusReport] = {part: CorpusReport() for part in ("valid", "test")}
    run.data.mkdir(parents=True)
    for part, report in reports.items():
        _write_pairs(_shown(corpus.pairs(part, report), f"reading {part}"), run.text(part))
    tokenizers = _learn(config.tokenizer, corpus)
    tokenizers.save(run.tokenizer)
    reports["train"] = CorpusReport()
    train = build_store(
        _shown(corpus.pairs("train", reports["train"]), "tokenising"),
        tokenizers,
        run.data / "train",
        config.data.max_length,
    )
    valid = build_store(
        read_pairs(run.text("valid")), tokenizers, run.data / "valid", _LONGEST_SCORED
    )
    if config.model.positions == "learned":
        for part in ("valid", "test"):
            _refuse_too_long(corpus, run, part, tokenizers, config.model.max_length)
    return PreparedText(tokenizers, train, valid, reports)


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


def _refuse_too_long(
    corpus: Corpus, run: RunFolder, part: Part, tokenizers: Tokenizers, positions: int
) -> None:
    for number, pair in enumerate(read_pairs(run.text(part)), 1):
        for tokenizer, text in zip(tokenizers, pair, strict=True):
            length = int(tokenizer.tokenize([text]).row_lengths()[0]) + 1
            if length > positions:
                raise InputError(
                    f"{corpus.specs[part] or corpus.specs['train']}: {part} pair {number} has "
                    f"{length} tokens, the end included; model.max_length is {positions}"
                )


def _write_pairs(pairs: Iterator[Pair], path: Path) -> None:
    """Writes pairs as TSV; a tab inside a text becomes a space."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for pair in pairs:
            file.write("\t".join(side.replace("\t", " ") for side in pair) + "\n")


def _shown(pairs: Iterator[Pair], doing: str) -> Iterator[Pair]:
    """The pairs, with a line now and then of how many have gone by."""
    shown = time.monotonic()
    for count, pair in enumerate(pairs, start=1):
        yield pair
        if time.monotonic() - shown > _PAUSE:
            shown = time.monotonic()
            print(f"  {doing}: {count:,} pairs", flush=True)


def _learn(config: TokenizerConfig, corpus: Corpus) -> Tokenizers:
    def pairs():
        return _shown(corpus.pairs("train"), "reading for the vocabulary")

    if config.joint:
        joint = _learn_one(config, chain.from_iterable(pairs()))
        return Tokenizers(joint, joint)
    return Tokenizers(
        _learn_one(config, (pair.source for pair in pairs())),
        _learn_one(config, (pair.target for pair in pairs())),
    )


def _learn_one(config: TokenizerConfig, texts: Iterator[str]) -> Tokenizer:
    if config.kind == "word":
        return WordTokenizer.learn(texts, config.vocab_size, config.min_frequency)
    return SentencePieceTokenizer.learn(
        texts, config.vocab_size, config.kind, max_sentences=_LEARNED_FROM
    )
