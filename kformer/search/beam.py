"""Beam search: several hypotheses side by side, the best of them kept at every step."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import tensorflow as tf

from kformer.ids import END_ID, PAD_ID
from kformer.search.protocol import NONE, REAL, SearchResult
from kformer.search.search import Search


class Found(NamedTuple):
    """The best finished hypotheses of each sentence, best first."""

    tokens: tf.Tensor  # int32 (batch, width, length)
    log_probabilities: tf.Tensor  # float32 (batch, width, length)
    scores: tf.Tensor  # float32 (batch, width), `NONE` where there is none yet
    ended: tf.Tensor  # bool (batch, width)


class Beams(NamedTuple):
    """Variables of a beam search: the unfinished hypotheses of each sentence, best first."""

    limits: tf.Tensor  # int32 (batch,)
    prefixes: tf.Tensor  # int32 (batch, any)
    tokens: tf.Tensor  # int32 (batch, width, length)
    log_probabilities: tf.Tensor  # float32 (batch, width, length)
    sums: tf.Tensor  # float32 (batch, width), what they compete by
    coverage: tf.Tensor  # float32 (batch, width, source), attention summed over all steps
    found: Found


@dataclass(frozen=True, kw_only=True)
class Beam(Search):
    """The `size` best continuations of the `size` best hypotheses, step by step.

    A hypothesis is finished when it ends while among the `size` best, or reaches its limit. Its
    score is sum of log-probabilities / penalty(n) + coverage, n its tokens with the end token. A
    sentence is done when `n_best` finished ones score at least what the best unfinished one could
    still reach: as log-probabilities and coverage are never above 0, that is its sum so far over
    the most favourable penalty to come. So stopping early never changes the result.

    Args:
        size: hypotheses of each sentence.
        n_best: how many of them to return; if the limit allows fewer, the rest score `NONE`.
        length_penalty: alpha; 0: none. Above 0 favours longer translations.
        length_penalty_form: "gnmt": ((5 + n) / 6)^alpha, as the Transformer's paper and Wu et al.;
            "power": n^alpha, as CTranslate2 and Marian.
        coverage_penalty: beta times the sum over source tokens of log(min(attention so far, 1))
            is added to scores. Needs a model with attention.
        constraints, stage: see `Search`.

    Source:
        Wu et al., "Google's Neural Machine Translation System", 2016, section 7.
    """

    size: int = 4
    n_best: int = 1
    length_penalty: float = 0.0
    length_penalty_form: Literal["gnmt", "power"] = "gnmt"
    coverage_penalty: float = 0.0

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"`size` must be at least 1. Received: {self.size}")
        if not 1 <= self.n_best <= self.size:
            raise ValueError(
                f"`n_best` must be from 1 to `size` ({self.size}). Received: {self.n_best}"
            )
        if self.length_penalty_form not in ("gnmt", "power"):
            raise ValueError(
                '`length_penalty_form` must be "gnmt" or "power". '
                f"Received: {self.length_penalty_form!r}"
            )
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"`length_penalty` must be finite. Received: {self.length_penalty}")
        if not 0 <= self.coverage_penalty < math.inf:
            raise ValueError(
                "`coverage_penalty` must be at least 0 and finite. "
                f"Received: {self.coverage_penalty}"
            )

    @property
    def width(self):
        return self.size

    def _start(self, limits, prefixes, draws, length, source):
        batch_size, size = tf.shape(limits)[0], self.size
        tokens = tf.fill([batch_size, size, length], PAD_ID)
        log_probabilities = tf.zeros([batch_size, size, length])
        # All hypotheses are the same at first: only one of them may compete.
        first = tf.concat([[0.0], tf.fill([size - 1], NONE)], axis=0)
        sums = tf.where(limits[:, tf.newaxis] > 0, first, NONE)
        return Beams(
            limits,
            prefixes,
            tokens,
            log_probabilities,
            sums=sums,
            coverage=tf.zeros([batch_size, size, source]),
            found=Found(
                tokens,
                log_probabilities,
                scores=tf.fill([batch_size, size], NONE),
                ended=tf.zeros([batch_size, size], tf.bool),
            ),
        )

    def _advance(self, time, logits, attention, carry: Beams):
        batch_size, size, vocab_size = tf.unstack(tf.shape(logits))
        rows, scores = self._scored(time, logits, carry)
        # Each hypothesis can end in one way only: among the 2 * size best continuations there are
        # `size` that go on.
        each = tf.minimum(2 * self.size, vocab_size)
        gains, tokens = tf.math.top_k(scores, each)
        sums = carry.sums[:, :, tf.newaxis] + tf.reshape(gains, [batch_size, size, each])
        sums, places = tf.math.top_k(
            tf.reshape(sums, [batch_size, size * each]), tf.minimum(2 * size, size * each)
        )
        parents = places // each
        tokens = tf.gather(tf.reshape(tokens, [batch_size, size * each]), places, batch_dims=1)
        normalizers = tf.reshape(tf.reduce_logsumexp(rows, axis=1), [batch_size, size])
        log_probabilities = tf.gather_nd(
            logits, tf.stack([parents, tokens], axis=2), batch_dims=1
        ) - tf.gather(normalizers, parents, batch_dims=1)
        coverage = carry.coverage + attention

        def continued(choice):
            """Tokens and log-probabilities (batch, size, length) of some of the continuations."""
            of = tf.gather(parents, choice, batch_dims=1)
            now = tf.range(tf.shape(carry.tokens)[2]) == time

            def extended(old, new):
                new = tf.gather(new, choice, batch_dims=1)[:, :, tf.newaxis]
                return tf.where(now, new, tf.gather(old, of, batch_dims=1))

            return extended(carry.tokens, tokens), extended(
                carry.log_probabilities, log_probabilities
            )

        best = tf.tile(tf.range(size)[tf.newaxis], [batch_size, 1])
        ended = tokens == END_ID
        last = (time + 1 >= carry.limits)[:, tf.newaxis]
        finished = (ended | last)[:, :size] & (sums[:, :size] > REAL)
        final = self._score(
            sums[:, :size], time + 1, tf.gather(coverage, parents[:, :size], batch_dims=1)
        )
        found = self._merged(
            carry.found,
            Found(*continued(best), tf.where(finished, final, NONE), ended[:, :size]),
        )
        sums, going = tf.math.top_k(tf.where(ended | last, NONE, sums), size)
        new_tokens, new_log_probabilities = continued(going)
        going_parents = tf.gather(parents, going, batch_dims=1)
        carry = carry._replace(
            tokens=new_tokens,
            log_probabilities=new_log_probabilities,
            sums=sums,
            coverage=tf.gather(coverage, going_parents, batch_dims=1),
            found=found,
        )
        return tf.gather(tokens, going, batch_dims=1), going_parents, carry

    def _running(self, time, carry: Beams):
        best = tf.reduce_max(carry.sums, axis=1)
        # A sum can only fall. Divided by a penalty, a negative one is best where that is largest.
        n = carry.limits if self.length_penalty > 0 else tf.fill([tf.size(best)], time + 1)
        reachable = best / self._penalty(n)
        beaten = carry.found.scores[:, self.n_best - 1] >= reachable
        return (time < carry.limits) & (best > REAL) & ~beaten

    def _result(self, carry: Beams):
        found = Found(*(part[:, : self.n_best] for part in carry.found))
        exists = found.scores > REAL
        log_probabilities = tf.where(exists[:, :, tf.newaxis], found.log_probabilities, 0.0)
        return SearchResult(
            tf.where(exists[:, :, tf.newaxis], found.tokens, PAD_ID),
            log_probabilities,
            tf.reduce_sum(log_probabilities, axis=2),
            found.scores,
            found.ended & exists,
        )

    def _merged(self, found: Found, new: Found) -> Found:
        both = [tf.concat(parts, axis=1) for parts in zip(found, new, strict=True)]
        _, best = tf.math.top_k(Found(*both).scores, self.size)
        return Found(*(tf.gather(part, best, batch_dims=1) for part in both))

    def _score(self, sums, n, coverage):
        scores = sums / self._penalty(n)
        if self.coverage_penalty:
            # Padding is what no step attended to at all.
            real = coverage > 0
            logs = tf.math.log(tf.minimum(tf.where(real, coverage, 1.0), 1.0))
            scores += self.coverage_penalty * tf.reduce_sum(logs, axis=2)
        return scores

    def _penalty(self, n):
        n = tf.cast(n, tf.float32)
        base = (5 + n) / 6 if self.length_penalty_form == "gnmt" else tf.maximum(n, 1.0)
        return base**self.length_penalty
