"""Models that translate, with training, evaluation and step-by-step decoding."""

from kformer.models.base import SequenceModel
from kformer.models.transformer import Transformer

__all__ = ["SequenceModel", "Transformer"]
