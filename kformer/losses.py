"""Cross-entropy over the real tokens of a batch."""

import keras
import tensorflow as tf

from kformer.ids import PAD_ID


@keras.saving.register_keras_serializable("kformer")
class MaskedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of logits, averaged over target tokens; padding counts for nothing.

    With label smoothing e the target distribution is 1 - e on the label plus e / V on each of
    all V tokens, the label included.

    As a Keras loss it gives the mean over a batch's tokens. `sums` gives what a mean over any
    larger whole, an epoch or an update split over devices, has to be made of.

    Args:
        label_smoothing: e, in [0, 1).
        pad_id: the label that marks padding.

    Call arguments:
        y_true: integer labels (batch, length).
        y_pred: float logits (batch, length, vocab_size).
        sample_weight: optional weights (batch,) or (batch, length) of sentences or tokens.

    Returns:
        A scalar: sum of weighted losses / sum of weights, over tokens; 0 without any token.

    Source:
        Szegedy et al., "Rethinking the Inception Architecture", 2016, section 7.
    """

    def __init__(self, label_smoothing: float = 0.0, pad_id: int = PAD_ID, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "`label_smoothing` must be at least 0 and below 1. "
                f"Received: label_smoothing={label_smoothing}"
            )
        self.label_smoothing = label_smoothing
        self.pad_id = pad_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        total, tokens = self.sums(y_true, y_pred, sample_weight)
        return tf.math.divide_no_nan(total, tokens)

    def call(self, y_true, y_pred):
        """Each token's loss, float32 (batch, length), padding included."""
        return token_cross_entropy(y_true, y_pred, self.label_smoothing)

    def sums(self, y_true, y_pred, sample_weight=None, smooth=True):
        """The sum of the tokens' losses and their number, two float32 scalars.

        With `smooth=False` the loss is the plain negative log-likelihood, as validation wants it.
        """
        losses = token_cross_entropy(y_true, y_pred, self.label_smoothing if smooth else 0.0)
        weights = token_weights(y_true, sample_weight, self.pad_id)
        # Not `losses * weights`: an infinite loss under padding must not become NaN.
        return tf.reduce_sum(tf.math.multiply_no_nan(losses, weights)), tf.reduce_sum(weights)

    def token_count(self, y_true, sample_weight=None):
        """The number of tokens, or the sum of their weights: a float32 scalar."""
        return tf.reduce_sum(token_weights(y_true, sample_weight, self.pad_id))

    def get_config(self):
        config = super().get_config()
        return {**config, "label_smoothing": self.label_smoothing, "pad_id": self.pad_id}


def token_weights(labels, sample_weight=None, pad_id: int = PAD_ID):
    """float32 (batch, length): 0 for padding, else 1 or the weight of the sentence or token."""
    weights = tf.cast(tf.not_equal(labels, pad_id), tf.float32)
    if sample_weight is None:
        return weights
    sample_weight = tf.cast(sample_weight, tf.float32)
    if sample_weight.shape.rank == 1:
        sample_weight = sample_weight[:, tf.newaxis]
    return weights * sample_weight


def token_cross_entropy(labels, logits, label_smoothing: float = 0.0):
    """Each token's cross-entropy, float32 (batch, length), from logits (batch, length, V)."""
    vocab_size = tf.shape(logits)[-1]
    rows = tf.reshape(tf.cast(logits, tf.float32), [-1, vocab_size])
    labels = tf.cast(labels, tf.int32)
    losses = _row_cross_entropy(rows, tf.reshape(labels, [-1]), label_smoothing)
    return tf.reshape(losses, tf.shape(labels))


def _row_cross_entropy(logits, labels, label_smoothing):
    """(N,) from logits (N, V) and labels (N,), without a tensor (N, V) but logits and gradient."""

    @tf.custom_gradient
    def loss(logits):
        # A padding label may be no id at all, such as -1.
        where = tf.stack([tf.range(tf.shape(labels)[0]), tf.maximum(labels, 0)], axis=1)
        log_normalizer = tf.reduce_logsumexp(logits, axis=-1)
        losses = log_normalizer - (1 - label_smoothing) * tf.gather_nd(logits, where)
        if label_smoothing:
            losses -= label_smoothing * tf.reduce_mean(logits, axis=-1)

        def gradient(upstream):
            upstream = upstream[:, tf.newaxis]
            # softmax(logits) - label_smoothing / V, less what the label is owed.
            probabilities = tf.exp(logits - log_normalizer[:, tf.newaxis])
            share = label_smoothing / tf.cast(tf.shape(logits)[1], tf.float32)
            if label_smoothing:
                probabilities -= share
            # Not `probabilities * upstream`: NaN under padding must not become a gradient.
            whole = tf.math.multiply_no_nan(probabilities, upstream)
            return tf.tensor_scatter_nd_sub(whole, where, (1 - label_smoothing) * upstream[:, 0])

        return losses, gradient

    return loss(logits)
