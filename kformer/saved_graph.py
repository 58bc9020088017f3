"""An exported graph, loaded: what `TranslationGraph` was before it was saved."""

import json
import os
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations that a saved graph uses)

from kformer import text
from kformer.errors import InputError
from kformer.limits import Limits

DESCRIPTION = "kformer.json"
"""The file beside a SavedModel that says what it is."""

# What loading raises where a file is missing, cut short or somebody else's.
_DAMAGES = (
    OSError, ValueError, KeyError, AttributeError, TypeError, IndexError, RecursionError,
    tf.errors.OpError,
)  # fmt: skip


class SavedGraph:
    """The signatures of a SavedModel as functions, and the limits they were exported with.

    Args:
        path: of a version's folder.

    Raises:
        InputError: the folder is no export of kformer, or is damaged.
    """

    def __init__(self, path: str | os.PathLike):
        path = Path(path)
        try:
            description = json.loads((path / DESCRIPTION).read_text("utf-8"))
            if description.get("of_lines"):
                raise InputError(
                    f"{path}: is of a model of lines, which translates nothing; ask a server for "
                    "how its texts go on"
                )
            self.width = int(description["width"])
            self.n_best = int(description["n_best"])
            self.limits = Limits(**description["limits"])
            kinds = [getattr(text, name) for name in description["tokenizers"]]
            self._loaded = tf.saved_model.load(path)
            signatures = self._loaded.signatures
            self.complete = _positional(signatures["complete"], "text", "prefix")
            self.score = _positional(signatures["score"], "source", "target")
            self.has_attention = "attention" in description["signatures"]
            if self.has_attention:
                self.attention = _positional(signatures["attention"], "source", "target")
            self.count_tokens = _positional(signatures["count_tokens"], "text")
            self.count_target_tokens = _positional(signatures["count_target_tokens"], "text")
            self.word_indices = tuple(kind.word_indices for kind in kinds)
        except InputError:
            raise
        except _DAMAGES as error:
            reason = str(error).strip().partition("\n")[0]
            raise InputError(f"{path}: not a whole export of kformer ({reason})") from error


def _positional(signature, *names: str):
    """A signature, which takes its inputs by name, as a function of them in order."""
    return lambda *inputs: signature(**dict(zip(names, inputs, strict=True)))
