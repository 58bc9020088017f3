"""Filters for sampling: each keeps some tokens' scores and sets the others to `NONE`."""

import tensorflow as tf

from kformer.search.protocol import NONE


def keep_top_k(scores, k: int):
    """Keeps the k highest scores of each row (rows, vocab_size); of equals, the lowest ids."""
    k = tf.minimum(k, tf.shape(scores)[1])
    _, ids = tf.math.top_k(scores, k)
    rows = tf.repeat(tf.range(tf.shape(scores)[0]), k)
    kept = tf.scatter_nd(
        tf.stack([rows, tf.reshape(ids, [-1])], axis=1),
        tf.ones([tf.size(ids)], tf.int32),
        tf.shape(scores),
    )
    return tf.where(kept > 0, scores, NONE)


def keep_top_p(scores, p: float):
    """Keeps the fewest likeliest tokens of each row that together have a probability of p."""
    order = tf.argsort(scores, axis=1, direction="DESCENDING", stable=True)
    ordered = tf.gather(tf.nn.softmax(scores), order, batch_dims=1)
    before = tf.cumsum(ordered, axis=1, exclusive=True)
    place = tf.argsort(order, axis=1)
    # The likeliest always stays, however small p is.
    kept = before < max(p, 1e-30)
    return tf.where(tf.gather(kept, place, batch_dims=1), scores, NONE)


def keep_min_p(scores, p: float):
    """Keeps tokens with at least p times the probability of the row's likeliest."""
    best = tf.reduce_max(scores, axis=1, keepdims=True)
    return tf.where(scores >= best + tf.math.log(p), scores, NONE)
