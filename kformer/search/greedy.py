"""Greedy search: the likeliest token at every step."""

from typing import Any

import tensorflow as tf

from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.search.protocol import SearchResult, Step, never_chosen


def greedy_search(step: Step, state: Any, limits: tf.Tensor) -> SearchResult:
    """Follows the likeliest token until every row has ended or reached its limit.

    Args:
        step: the model's `step`.
        state: the model's state before the first step, a nest of tensors with the batch first.
        limits: int32 (batch,), the most tokens of each row, the end token included. A row's limit
            is its own, so what stands beside it in the batch never changes a result.

    Returns:
        A `SearchResult` whose tokens are as wide as the longest row.
    """
    batch_size = tf.shape(limits)[0]
    max_length = tf.reduce_max(tf.concat([limits, [0]], axis=0))

    def unfinished(time, tokens, last, log_probability, ended, state):
        return tf.logical_and(time < max_length, tf.reduce_any(_running(time, ended)))

    def extend(time, tokens, last, log_probability, ended, state):
        running = _running(time, ended)
        logits, state = step(last, state)
        log_probabilities = tf.nn.log_softmax(logits)
        allowed = log_probabilities + never_chosen(tf.shape(logits)[1])
        chosen = tf.where(running, tf.argmax(allowed, axis=1, output_type=tf.int32), PAD_ID)
        gained = tf.gather(log_probabilities, chosen, batch_dims=1)
        where = tf.stack([tf.range(batch_size), tf.repeat(time, batch_size)], axis=1)
        tokens = tf.tensor_scatter_nd_update(tokens, where, chosen)
        log_probability += tf.where(running, gained, 0.0)
        ended = tf.logical_or(ended, tf.equal(chosen, END_ID))
        return time + 1, tokens, chosen, log_probability, ended, state

    def _running(time, ended):
        return tf.logical_and(tf.logical_not(ended), time < limits)

    time, tokens, _, log_probability, ended, _ = tf.while_loop(
        unfinished,
        extend,
        (
            tf.constant(0),
            tf.fill([batch_size, max_length], PAD_ID),
            tf.fill([batch_size], START_ID),
            tf.zeros([batch_size]),
            tf.zeros([batch_size], tf.bool),
            state,
        ),
    )
    return SearchResult(tokens[:, :time], log_probability, ended)
