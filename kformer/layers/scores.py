"""How attention is made of scores, whatever function gives them."""

import tensorflow as tf


def dot_product_scores(query, key):
    """q . k / sqrt(depth) of every query and key.

    The products are made in the precision of the inputs.

    Args:
        query: float tensor (..., queries, depth).
        key: float tensor (..., keys, depth).

    Returns:
        float32 tensor (..., queries, keys).

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.
    """
    depth = tf.cast(tf.shape(key)[-1], query.dtype)
    scores = tf.matmul(query * tf.math.rsqrt(depth), key, transpose_b=True)
    return tf.cast(scores, tf.float32)


def additive_scores(query, key, vector):
    """v . tanh(q + k) of every query and key, both projected to one width before.

    Needs memory for queries * keys * depth numbers.

    Args:
        query: float tensor (..., queries, depth).
        key: float tensor (..., keys, depth).
        vector: v, float tensor (depth,), or (heads, 1, 1, depth) where the others have heads.

    Returns:
        float32 tensor (..., queries, keys).

    Source:
        Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and Translate",
        2015, section A.1.2.
    """
    hidden = tf.tanh(query[..., :, tf.newaxis, :] + key[..., tf.newaxis, :, :])
    return tf.reduce_sum(tf.cast(hidden * vector, tf.float32), axis=-1)


def attend(scores, value, mask=None, dropout=None):
    """The mean of the values that the softmax of the scores weighs, exact under masks.

    A query that may attend to nothing gets weights of zero, thus a context of zero, and passes no
    gradient.

    Args:
        scores: float32 tensor (..., queries, keys).
        value: float tensor (..., keys, depth).
        mask: boolean tensor that broadcasts to the shape of `scores`, True = attend. None: all.
        dropout: function applied to the weights, or None.

    Returns:
        The context (..., queries, depth) in the dtype of `value`, and the weights
        (..., queries, keys) in float32, before dropout.

    Raises:
        ValueError: the mask has more axes than the scores.
    """
    if mask is None:
        weights = tf.nn.softmax(scores)
    else:
        mask = tf.convert_to_tensor(mask)
        ranks = scores.shape.rank, mask.shape.rank
        # Scores would broadcast to such a mask: each sentence under the masks of all.
        if None not in ranks and ranks[1] > ranks[0]:
            raise ValueError(
                f"The attention mask must broadcast to the scores, {tuple(scores.shape)}: "
                "(batch, queries, keys), with heads (batch, heads, queries, keys). "
                f"Received: attention_mask.shape={tuple(mask.shape)}"
            )
        # The lowest float32 cannot overflow here: it replaces scores and is never added to them.
        weights = tf.nn.softmax(tf.where(mask, scores, scores.dtype.min))
        weights *= tf.cast(tf.reduce_any(mask, axis=-1, keepdims=True), tf.float32)
    kept = weights if dropout is None else dropout(weights)
    return tf.matmul(tf.cast(kept, value.dtype), value), weights
