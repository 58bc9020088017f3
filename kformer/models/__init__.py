"""Models that translate, with training, evaluation and step-by-step decoding."""

# A saved model names the loss, metrics and optimizer it was compiled with: register them too.
import kformer.metrics
import kformer.optimizers
import kformer.schedules  # noqa: F401
from kformer.models.base import SequenceModel
from kformer.models.language_model import LanguageModel
from kformer.models.recurrent import Recurrent
from kformer.models.transformer import Transformer

KINDS = {
    "transformer": Transformer,
    "recurrent": Recurrent,
    "language_model": LanguageModel,
}
"""The models that can be trained, by `model.kind` of a configuration."""

__all__ = ["KINDS", "LanguageModel", "Recurrent", "SequenceModel", "Transformer"]
