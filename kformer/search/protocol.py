"""What a search needs of a model, and what it gives back."""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf


class State(NamedTuple):
    """All that decoding carries from one step to the next.

    A search keeps several hypotheses of each sentence. It reorders `hypotheses` as it continues
    one twice and drops another; `sentences`, however large, it only thins out when a sentence is
    finished.
    """

    time: tf.Tensor  # int32 scalar, the number of steps so far
    sentences: Any  # nest of tensors (batch, ...)
    hypotheses: Any  # nest of tensors (batch * width, ...), those of a sentence side by side
    # float32 (batch * width, source): what the last step attended to, 0 on padding. A model
    # without attention has a source of 0.
    attention: tf.Tensor


class Steppable(Protocol):
    """A model that generates one token after the other."""

    def encode(self, source_ids) -> Any:
        """int32 (batch, source) to whatever `init_state` needs of it."""

    def init_state(self, encoded, width, length) -> State:
        """The state before the first step, with room for `length` steps of `width` hypotheses."""

    def extend(self, state: State, steps) -> State:
        """The state with room for so many more steps."""

    def step(self, token_ids, state: State) -> tuple[tf.Tensor, State]:
        """int32 (batch * width,) to float32 logits (batch * width, vocab_size) of the next."""


class SearchResult(NamedTuple):
    """The hypotheses of each sentence, best first, without the start token."""

    tokens: tf.Tensor  # int32 (batch, n, length); the end token is kept, padding follows it
    log_probabilities: tf.Tensor  # float32 (batch, n, length) of each token, 0 on padding
    log_probability: tf.Tensor  # float32 (batch, n), their sum, the end token's included
    score: tf.Tensor  # float32 (batch, n), what they are sorted by; `NONE` where there is none
    ended: tf.Tensor  # bool (batch, n), False where the limit cut a hypothesis short


# Lower than any sum of log-probabilities, and far from where sums of it would overflow.
NONE = -1e9

# Sums of log-probabilities are above this; whatever a `NONE` has entered is below.
REAL = NONE / 10
