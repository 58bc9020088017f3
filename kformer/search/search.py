"""What every search shares: the loop over time, and what is asked for and given back."""

import abc
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf

from kformer.ids import PAD_ID, START_ID
from kformer.search.constraints import Constraints
from kformer.search.protocol import SearchResult, State, Steppable


@dataclass(frozen=True, kw_only=True)
class Search(abc.ABC):
    """A way to read translations out of a model. Works on the stepping protocol alone.

    Calling it searches, in eager mode or inside a `tf.function`:

    Call arguments:
        model: has the stepping protocol (`Steppable`).
        encoded: of a batch, from `model.encode`.
        limits: int32 (batch,), the most tokens of each sentence, the end token included. A
            sentence's limit is its own: what stands beside it in the batch changes nothing.
        prefixes: int32 (batch, any), tokens that each translation begins with, padding after
            them. They count like all others. None: none.
        draws: int32 (batch,), what tells the samples of one sentence from those of another, if
            the search samples. None: the places in the batch.
        length: scalar, not below any limit. Where it is given all shapes are known before the
            first step, as XLA needs them, and the result is as wide as this. None: shapes follow
            the search, which puts finished sentences aside, and are no larger than they have to be.

    Returns:
        A `SearchResult`, as wide as its longest hypothesis.

    Args:
        constraints: on what may be chosen.
        stage: steps after which finished sentences are put aside, and for which there is room at
            first.
    """

    constraints: Constraints = field(default_factory=Constraints)
    stage: int = 16

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """Hypotheses of each sentence in work at a time."""

    @abc.abstractmethod
    def _start(self, limits, prefixes, draws, length, source) -> Any:
        """The search's own variables before the first step, a nest of tensors (batch, ...).

        Args:
            limits, prefixes, draws, length: of the call.
            source: scalar, positions of the source.
        """

    @abc.abstractmethod
    def _advance(self, time, logits, attention, carry) -> tuple[tf.Tensor, tf.Tensor | None, Any]:
        """One token more of each hypothesis.

        Args:
            time: scalar, the number of tokens so far.
            logits: float32 (batch, width, vocab_size) of the next.
            attention: float32 (batch, width, source).
            carry: the search's own variables.

        Returns:
            The tokens (batch, width), the hypotheses that they continue (batch, width) or None
            where each continues its own, and the new variables.
        """

    @abc.abstractmethod
    def _running(self, time, carry) -> tf.Tensor:
        """bool (batch,), False where a sentence is finished."""

    @abc.abstractmethod
    def _result(self, carry) -> SearchResult:
        """What was found."""

    def __call__(
        self, model: Steppable, encoded, limits, prefixes=None, draws=None, length=None
    ) -> SearchResult:
        limits = tf.convert_to_tensor(limits, tf.int32)
        batch_size = tf.shape(limits)[0]
        if prefixes is None:
            prefixes = tf.zeros([batch_size, 0], tf.int32)
        prefixes = tf.convert_to_tensor(prefixes, tf.int32)
        draws = tf.range(batch_size) if draws is None else tf.convert_to_tensor(draws, tf.int32)
        if length is None:
            longest = tf.reduce_max(tf.concat([limits, [0]], axis=0))
            stage = tf.minimum(self.stage, longest)
        else:
            longest = stage = length
        state = model.init_state(encoded, self.width, stage)
        carry = self._start(limits, prefixes, draws, longest, tf.shape(state.attention)[1])
        last = tf.fill([batch_size * self.width], START_ID)

        def running(time, carry):
            return tf.math.count_nonzero(self._running(time, carry), dtype=tf.int32)

        advance = partial(self._step, model)

        def run_stage(room, kept, last, state, carry, results):
            def go_on(last, state, carry):
                still = running(state.time, carry)
                # Half of the sentences done: the others go faster without them.
                return (still * 2 > tf.shape(kept)[0]) & (state.time < room)

            last, state, carry = _while(go_on, advance, (last, state, carry))
            results = tf.nest.map_structure(
                lambda whole, part: tf.tensor_scatter_nd_update(whole, kept[:, tf.newaxis], part),
                results,
                self._result(carry),
            )
            going = tf.where(self._running(state.time, carry))[:, 0]
            last, state, carry = self._thinned(last, state, carry, going)
            more = tf.minimum(state.time + stage, longest) - room
            return (
                room + more,
                tf.gather(kept, going),
                last,
                model.extend(state, more),
                carry,
                results,
            )

        if length is not None:
            _, state, carry = _while(
                lambda last, state, carry: running(state.time, carry) > 0,
                advance,
                (last, state, carry),
            )
            return self._result(carry)
        *_, results = _while(
            lambda room, kept, last, state, carry, results: running(state.time, carry) > 0,
            run_stage,
            (stage, tf.range(batch_size), last, state, carry, self._result(carry)),
        )
        return _trimmed(results)

    def _step(self, model: Steppable, last, state: State, carry) -> tuple[tf.Tensor, State, Any]:
        """The last tokens (batch * width,), the state and the search's own variables, one step
        later."""
        logits, state = model.step(last, state)
        tokens, parents, carry = self._advance(
            state.time - 1, self._grouped(logits), self._grouped(state.attention), carry
        )
        if parents is not None:
            state = state._replace(hypotheses=self._reordered(state.hypotheses, parents))
        return tf.reshape(tokens, [-1]), state, carry

    def _scored(self, time, logits, carry):
        """Logits as (batch * width, vocab_size), and the scores to choose the next token by.

        `carry` has `tokens` (batch, width, length) and `prefixes` (batch, any).
        """
        batch_size, width, vocab_size = tf.unstack(tf.shape(logits))
        rows = tf.reshape(logits, [batch_size * width, vocab_size])
        tokens = tf.reshape(carry.tokens, [batch_size * width, tf.shape(carry.tokens)[2]])
        prefixes = tf.repeat(carry.prefixes, width, axis=0)
        return rows, self.constraints.scores(rows, tokens, time, prefixes)

    def _grouped(self, tensor):
        """(batch * width, n) as (batch, width, n)."""
        return tf.reshape(tensor, [-1, self.width, tf.shape(tensor)[1]])

    def _reordered(self, hypotheses, parents):
        first = tf.range(tf.shape(parents)[0])[:, tf.newaxis] * self.width
        rows = tf.reshape(first + parents, [-1])
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), hypotheses)

    def _thinned(self, last, state: State, carry, going):
        """All variables of the sentences that go on."""
        rows = tf.reshape(
            going[:, tf.newaxis] * self.width + tf.range(self.width, dtype=going.dtype), [-1]
        )

        def take(nest, indices):
            return tf.nest.map_structure(lambda tensor: tf.gather(tensor, indices), nest)

        state = State(
            state.time,
            take(state.sentences, going),
            take(state.hypotheses, rows),
            tf.gather(state.attention, rows),
        )
        return tf.gather(last, rows), state, take(carry, going)


def _while(condition, body, variables):
    """`tf.while_loop` whose variables may change their size along every axis."""
    variables = tf.nest.map_structure(tf.convert_to_tensor, variables)
    shapes = tf.nest.map_structure(
        lambda tensor: tf.TensorShape([None] * tensor.shape.rank), variables
    )
    return tf.while_loop(condition, body, variables, shape_invariants=shapes)


def _trimmed(result: SearchResult) -> SearchResult:
    """As wide as the longest hypothesis."""
    used = tf.reduce_any(result.tokens != PAD_ID, axis=[0, 1])
    length = tf.math.count_nonzero(used, dtype=tf.int32)
    return result._replace(
        tokens=result.tokens[:, :, :length],
        log_probabilities=result.log_probabilities[:, :, :length],
    )
