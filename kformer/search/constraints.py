"""What a search may not choose, whichever search it is."""

from dataclasses import dataclass

import tensorflow as tf

from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.search.protocol import NONE

_NO_TEXT = (PAD_ID, UNK_ID, START_ID)


@dataclass(frozen=True)
class Constraints:
    """Limits on what is generated. Padding, start and unknown are never chosen.

    Where they leave nothing to choose, the hypothesis ends.

    Args:
        min_length: tokens before the end token may be chosen, not counting a prefix.
        no_repeat_ngram_size: no n tokens in a row occur twice; 0: they may.
        repetition_penalty: above 1 makes tokens that were generated before less likely (Keskar et
            al., "CTRL", 2019, section 4.1): it divides their positive logits and multiplies their
            negative ones. It steers the choice; reported log-probabilities are the model's.
        forbidden_tokens: ids that are never chosen.
    """

    min_length: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    forbidden_tokens: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("min_length", "no_repeat_ngram_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {getattr(self, name)}")
        if self.no_repeat_ngram_size > 100:
            raise ValueError(
                f"`no_repeat_ngram_size` must be at most 100. Received: {self.no_repeat_ngram_size}"
            )
        if not 1e-3 <= self.repetition_penalty <= 1e3:
            raise ValueError(
                "`repetition_penalty` must be from 0.001 to 1000. "
                f"Received: {self.repetition_penalty}"
            )

    def scores(self, logits, tokens, time, prefixes):
        """Log-probabilities to choose the next token by, `NONE` where it must not be chosen.

        Args:
            logits: float32 (rows, vocab_size).
            tokens: int32 (rows, length), those chosen so far.
            time: scalar, their number.
            prefixes: int32 (rows, any), how each row has to begin; padding follows.

        Returns:
            float32 (rows, vocab_size).
        """
        rows, vocab_size = tf.unstack(tf.shape(logits))
        if self.repetition_penalty != 1:
            penalty = self.repetition_penalty
            penalised = tf.where(logits > 0, logits / penalty, logits * penalty)
            logits = tf.where(_marked(tokens, tokens != PAD_ID, vocab_size), penalised, logits)
        log_probabilities = tf.nn.log_softmax(logits)
        ids = tf.range(vocab_size)
        never = tf.constant([*_NO_TEXT, *self.forbidden_tokens])
        forbidden = tf.reduce_any(ids[:, tf.newaxis] == never, axis=1)[tf.newaxis]
        if self.min_length:
            given = tf.math.count_nonzero(prefixes, axis=1, keepdims=True, dtype=tf.int32)
            forbidden |= (ids == END_ID) & (time < given + self.min_length)
        if self.no_repeat_ngram_size:
            forbidden |= self._repeats(tokens, time, vocab_size)
        if self.min_length or self.no_repeat_ngram_size or self.forbidden_tokens:
            nothing_left = tf.reduce_all(forbidden, axis=1, keepdims=True)
            forbidden &= ~(nothing_left & (ids == END_ID))
        width = tf.shape(prefixes)[1]
        forced = tf.pad(prefixes, [[0, 0], [0, 1]])[:, tf.minimum(time, width), tf.newaxis]
        forbidden = tf.where(forced == PAD_ID, forbidden, ids != forced)
        return tf.where(forbidden, NONE, log_probabilities)

    def _repeats(self, tokens, time, vocab_size):
        """bool (rows, vocab_size), True where the token would complete an n-gram once more."""
        before = self.no_repeat_ngram_size - 1
        length = tf.shape(tokens)[1]
        starts = tf.range(tf.maximum(length - before, 0))
        same = tf.fill([tf.shape(tokens)[0], tf.size(starts)], True)
        for offset in range(before):
            # Clipped to be valid; an n-gram that starts so early is not complete yet.
            latest = tf.gather(tokens, tf.maximum(time - before + offset, 0), axis=1)
            same &= tf.gather(tokens, starts + offset, axis=1) == latest[:, tf.newaxis]
        same &= (starts + before < time) & (time >= before)
        return _marked(tf.gather(tokens, starts + before, axis=1), same, vocab_size)


def _marked(ids, where, vocab_size):
    """bool (rows, vocab_size), True at the ids (rows, n) for which `where` (rows, n) is True."""
    rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, tf.newaxis], tf.shape(ids))
    counts = tf.scatter_nd(
        tf.stack([rows, ids], axis=2), tf.cast(where, tf.int32), [tf.shape(ids)[0], vocab_size]
    )
    return counts > 0
