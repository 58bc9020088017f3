"""Searches that follow paths once chosen: greedy, and sampling."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import tensorflow as tf

from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.search.filters import keep_min_p, keep_top_k, keep_top_p
from kformer.search.protocol import NONE, REAL, SearchResult, Steppable
from kformer.search.search import Search


class Paths(NamedTuple):
    """Variables of a search along paths."""

    limits: tf.Tensor  # int32 (batch,)
    prefixes: tf.Tensor  # int32 (batch, any)
    chances: tf.Tensor  # float32 (batch, width, length), drawn beforehand
    tokens: tf.Tensor  # int32 (batch, width, length)
    log_probabilities: tf.Tensor  # float32 (batch, width, length)
    ended: tf.Tensor  # bool (batch, width)


@dataclass(frozen=True, kw_only=True)
class PathSearch(Search):
    """A search whose hypotheses know nothing of each other."""

    def stream(self, model: Steppable) -> Callable[..., Iterator[tf.Tensor]]:
        """The search as a function that gives every token as soon as it is chosen.

        Args:
            model: has the stepping protocol.

        Returns:
            A function of `encoded`, `limits`, `prefixes` and `draws`, as of the call. It gives
            int32 (batch, width) of one step after the other: the tokens that the call has in the
            end.
            A step is traced once, however many texts there are.
        """
        step = tf.function(partial(self._step, model), reduce_retracing=True)

        def stream(encoded, limits, prefixes, draws):
            limits = tf.convert_to_tensor(limits, tf.int32)
            longest = tf.reduce_max(limits)
            state = model.init_state(encoded, self.width, longest)
            carry = self._start(
                limits,
                tf.convert_to_tensor(prefixes, tf.int32),
                tf.convert_to_tensor(draws, tf.int32),
                longest,
                tf.shape(state.attention)[1],
            )
            last = tf.fill([tf.shape(limits)[0] * self.width], START_ID)
            while tf.reduce_any(self._running(state.time, carry)):
                last, state, carry = step(last, state, carry)
                yield tf.reshape(last, [-1, self.width])

        return stream

    @abstractmethod
    def _chances(self, draws, length) -> tf.Tensor:
        """Numbers that choices are left to, float32 (batch, width, length), 0 to 1."""

    @abstractmethod
    def _choose(self, scores, chances) -> tf.Tensor:
        """Tokens int32 (rows,) by scores (rows, vocab_size) and chances (rows,)."""

    def _start(self, limits, prefixes, draws, length, source):
        batch_size = tf.shape(limits)[0]
        return Paths(
            limits,
            prefixes,
            self._chances(draws, length),
            tokens=tf.fill([batch_size, self.width, length], PAD_ID),
            log_probabilities=tf.zeros([batch_size, self.width, length]),
            ended=tf.zeros([batch_size, self.width], tf.bool),
        )

    def _advance(self, time, logits, attention, carry: Paths):
        logits, scores = self._scored(time, logits, carry)
        chosen = self._choose(scores, tf.reshape(carry.chances[:, :, time], [-1]))
        gained = tf.gather(logits, chosen, batch_dims=1) - tf.reduce_logsumexp(logits, axis=1)
        running = ~carry.ended & (time < carry.limits)[:, tf.newaxis]
        chosen = tf.where(running, tf.reshape(chosen, tf.shape(running)), PAD_ID)
        gained = tf.where(running, tf.reshape(gained, tf.shape(running)), 0.0)
        now = tf.range(tf.shape(carry.tokens)[2]) == time
        carry = carry._replace(
            tokens=tf.where(now, chosen[:, :, tf.newaxis], carry.tokens),
            log_probabilities=tf.where(now, gained[:, :, tf.newaxis], carry.log_probabilities),
            ended=carry.ended | (chosen == END_ID),
        )
        return chosen, None, carry

    def _running(self, time, carry: Paths):
        return tf.reduce_any(~carry.ended, axis=1) & (time < carry.limits)

    def _result(self, carry: Paths):
        totals = tf.reduce_sum(carry.log_probabilities, axis=2)
        best_first = tf.argsort(totals, axis=1, direction="DESCENDING", stable=True)
        result = SearchResult(carry.tokens, carry.log_probabilities, totals, totals, carry.ended)
        return SearchResult(*(tf.gather(part, best_first, batch_dims=1) for part in result))


@dataclass(frozen=True, kw_only=True)
class Greedy(PathSearch):
    """The likeliest token at every step. Arguments: see `Search`."""

    @property
    def width(self):
        return 1

    def _chances(self, draws, length):
        return tf.zeros([tf.shape(draws)[0], 1, length])

    def _choose(self, scores, chances):
        return tf.argmax(scores, axis=1, output_type=tf.int32)


@dataclass(frozen=True, kw_only=True)
class Sample(PathSearch):
    """Tokens drawn by their probability, after a temperature and up to three filters.

    What is drawn for a sentence depends on the seed and its number in `draws`, not on the
    sentences beside it.

    Args:
        n: translations drawn of each sentence, independently; they come sorted, and may repeat.
        temperature: above 1 evens probabilities out, below 1 sharpens them.
        top_k: draw from the k likeliest tokens; 0: from all.
        top_p: draw from the likeliest tokens that together have this probability (Holtzman et
            al., "The Curious Case of Neural Text Degeneration", 2020).
        min_p: draw from tokens with at least this share of the likeliest one's probability.
        seed: same seed, same sample.
        constraints, stage: see `Search`.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self):
        for name, valid, rule in (
            ("n", self.n >= 1, "at least 1"),
            ("temperature", 0 < self.temperature < math.inf, "above 0 and finite"),
            ("top_k", 0 <= self.top_k < 2**31, "from 0 to 2**31 - 1"),
            ("seed", 0 <= self.seed < 2**31, "from 0 to 2**31 - 1"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
        ):
            if not valid:
                raise ValueError(f"`{name}` must be {rule}. Received: {getattr(self, name)}")

    @property
    def width(self):
        return self.n

    def _chances(self, draws, length):
        def of_sentence(draw):
            return tf.random.stateless_uniform([length, self.n], seed=[self.seed, draw])

        # One too many: of no sentences there would be no shape.
        draws = tf.concat([draws, [0]], axis=0)
        drawn = tf.map_fn(of_sentence, draws, fn_output_signature=tf.float32)[:-1]
        # Time came first: the chances of early tokens do not depend on how long others may be.
        return tf.transpose(drawn, [0, 2, 1])

    def _choose(self, scores, chances):
        best = tf.reduce_max(scores, axis=1, keepdims=True)
        # A high temperature must not bring near what must not be chosen.
        scores = tf.where(scores > REAL, (scores - best) / self.temperature, NONE)
        if self.top_k:
            scores = keep_top_k(scores, self.top_k)
        if self.top_p < 1:
            scores = keep_top_p(scores, self.top_p)
        if self.min_p:
            scores = keep_min_p(scores, self.min_p)
        up_to = tf.cumsum(tf.nn.softmax(scores), axis=1)
        # The first token whose sum of probabilities is above the chance; the sum of all may be
        # a little below 1.
        drawn = tf.searchsorted(up_to, chances[:, tf.newaxis] * up_to[:, -1:], side="right")
        return tf.minimum(drawn[:, 0], tf.shape(scores)[1] - 1)
