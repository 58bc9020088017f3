"""How long texts may be, in tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import PAD_ID

if TYPE_CHECKING:
    from kformer.models.base import SequenceModel

_NONE = 2**30
# Attention of a pair grows with the square of its length.
_MOST_SCORED = 4096


@dataclass(frozen=True)
class Limits:
    """Limits of length, in tokens.

    Args:
        length_factor, length_margin: a translation may have up to factor * n + margin tokens for a
            source of n, the end counted in both; a prefix comes on top.
        max_source_tokens: most tokens read of a text, its end not counted.
        max_target_tokens: most of a translation, its prefix and its end included.
        max_prefix_tokens: most of a prefix.
        max_scored_tokens: most of either side of a given pair, its end not counted.
        max_pair_tokens: most of both sides together, their ends not counted.
    """

    length_factor: float
    length_margin: int
    max_source_tokens: int
    max_target_tokens: int
    max_prefix_tokens: int
    max_scored_tokens: int
    max_pair_tokens: int

    @classmethod
    def of_model(
        cls,
        model: "SequenceModel",
        length_factor: float,
        length_margin: int,
        max_source_tokens: int,
        max_length: int | None = None,
    ) -> "Limits":
        """The limits that are asked for, as far as a model has positions.

        Args:
            model: a model that is asked.
            length_factor, length_margin, max_source_tokens: as of the class.
            max_length: most tokens of a translation. None: no limit but the model's.

        Raises:
            InputError: one of them is out of range.
        """
        for name, value in (("length_factor", length_factor), ("length_margin", length_margin)):
            if not 0 <= value < _NONE:
                raise InputError(f"{name} must not be negative, nor huge. Received: {value}")
        if max_length is not None and max_length < 1:
            raise InputError(f"max_length must be at least 1. Received: {max_length}")
        positions = model.max_positions or _NONE
        # Where both share the positions, half of them is sure to be there for a side.
        of_side = positions // 2 if model.one_sequence else positions
        # The end token takes a position.
        max_source_tokens = min(max_source_tokens, of_side - 1)
        max_target_tokens = min(max_length or _NONE, positions)
        # Of one sequence, a source as long as is read takes its share.
        taken = max_source_tokens + 1 if model.one_sequence else 0
        return cls(
            length_factor,
            length_margin,
            max_source_tokens,
            max_target_tokens,
            max_prefix_tokens=min(max_target_tokens, positions - taken),
            max_scored_tokens=min(positions - 1, _MOST_SCORED),
            # Of a given pair it is known what each side takes.
            max_pair_tokens=positions - 2 if model.one_sequence else _NONE,
        )

    def of_translations(self, source_ids, prefix_lengths=0) -> tf.Tensor:
        """Most tokens of each translation, int32 (batch,).

        Args:
            source_ids: int32 (batch, source), with their end tokens and padding.
            prefix_lengths: int32 (batch,).
        """
        lengths = tf.math.count_nonzero(source_ids != PAD_ID, axis=1, dtype=tf.int32)
        most = self.length_factor * tf.cast(lengths, tf.float32) + float(self.length_margin)
        # Bounded before it is an integer, which would overflow.
        most = tf.cast(tf.minimum(most, float(_NONE)), tf.int32) + prefix_lengths
        return tf.minimum(
            tf.minimum(most, self.max_target_tokens), self.max_pair_tokens + 2 - lengths
        )

    def can_score(self, source_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
        """Which pairs can be scored, bool (pairs,), by the tokens of their sides."""
        longest = np.maximum(source_lengths, target_lengths)
        together = source_lengths + target_lengths
        return (longest <= self.max_scored_tokens) & (together <= self.max_pair_tokens)
