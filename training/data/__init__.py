"""From parallel text to batches: corpus (read), splits (its three parts), store (tokenise once),
batches (plan)."""

from training.data.batches import assemble, evaluation_batches, plan_epoch, training_batches
from training.data.corpus import (
    CorpusReport,
    Pair,
    Split,
    embedded_corpora,
    read_pairs,
    split_pairs,
)
from training.data.splits import Corpus, Part
from training.data.store import StoreMeta, TokenStore, build_store

__all__ = [
    "Corpus",
    "CorpusReport",
    "Pair",
    "Part",
    "Split",
    "StoreMeta",
    "TokenStore",
    "assemble",
    "build_store",
    "embedded_corpora",
    "evaluation_batches",
    "plan_epoch",
    "read_pairs",
    "split_pairs",
    "training_batches",
]
