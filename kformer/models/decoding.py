"""What models of attention keep of the sentences that they decode, and who may read which of it."""

from typing import NamedTuple

import tensorflow as tf

from kformer.layers import KeyValues
from kformer.search.protocol import State


class SentenceState(NamedTuple):
    """What decoding keeps of each sentence; a search never reorders it."""

    caches: list[KeyValues]  # of each layer: the target so far, of all hypotheses
    memories: list[KeyValues]  # of each layer: the source
    mask: tf.Tensor  # (batch, 1, 1, source)


def first_state(sentences: SentenceState, width, length) -> State:
    """The state before the first step of `width` hypotheses, with room for `length` steps."""
    batch_size, source = tf.shape(sentences.mask)[0], tf.shape(sentences.mask)[3]
    return State(
        time=tf.constant(0),
        sentences=sentences,
        # Which of a sentence's hypotheses wrote each position that a hypothesis descends from.
        hypotheses=tf.zeros([batch_size * width, length], tf.int32),
        attention=tf.zeros([batch_size * width, source]),
    )


def extended(state: State, steps) -> State:
    """The state with room for so many more steps."""

    def extend(cache):
        return tf.pad(cache, [[0, 0], [0, 0], [0, 0], [0, steps], [0, 0]])

    sentences = state.sentences
    caches = [KeyValues(*map(extend, cache)) for cache in sentences.caches]
    return state._replace(
        sentences=sentences._replace(caches=caches),
        hypotheses=tf.pad(state.hypotheses, [[0, 0], [0, steps]]),
    )


def written(state: State, width) -> tuple[tf.Tensor, tf.Tensor]:
    """The state's `hypotheses` once each has written its newest position, and what each sees.

    Returns:
        int32 (batch * width, length), and bool (batch, 1, width, width * length): the positions
        of the sentence's cache that a hypothesis descends from, the newest included.
    """
    batch_size, length = tf.shape(state.sentences.mask)[0], tf.shape(state.hypotheses)[1]
    now = tf.equal(tf.range(length), state.time)
    own = tf.tile(tf.range(width), [batch_size])[:, tf.newaxis]
    writers = tf.where(now, own, state.hypotheses)
    seen = tf.equal(
        tf.reshape(writers, [batch_size, 1, width, 1, length]), tf.range(width)[:, tf.newaxis]
    ) & (tf.range(length) <= state.time)
    return writers, tf.reshape(seen, [batch_size, 1, width, width * length])
