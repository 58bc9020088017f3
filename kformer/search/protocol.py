"""What a search needs of a model, and what it gives back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from kformer.ids import PAD_ID, START_ID

# step(token_ids (batch,), state) -> (float32 logits (batch, vocab_size), state)
Step = Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]]


class SearchResult(NamedTuple):
    """Chosen tokens of each row, without the start token."""

    tokens: tf.Tensor  # int32 (batch, length); the end token is kept, padding follows it
    log_probability: tf.Tensor  # float32 (batch,), the sum over all tokens, the end included
    ended: tf.Tensor  # bool (batch,), False where the limit cut the row short


def never_chosen(vocab_size: tf.Tensor) -> tf.Tensor:
    """float32 (vocab_size,), lowest at the ids that are no text: padding and start; else 0."""
    ids = tf.range(vocab_size)
    forbidden = tf.logical_or(tf.equal(ids, PAD_ID), tf.equal(ids, START_ID))
    return tf.where(forbidden, tf.float32.min, 0.0)
