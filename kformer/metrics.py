"""Metrics over real target tokens: sums over the whole epoch divided once, at the end."""

import keras
import tensorflow as tf

from kformer.ids import PAD_ID
from kformer.losses import token_cross_entropy, token_weights


class _TokenMean(keras.metrics.Metric):
    """The mean of a value of each token, over all tokens that are not padding."""

    def __init__(self, pad_id: int = PAD_ID, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.pad_id = pad_id
        self.total = self.add_weight(name="total", initializer="zeros")
        self.tokens = self.add_weight(name="tokens", initializer="zeros")

    def values(self, y_true, y_pred):
        """float32 (batch, length)."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(y_true, sample_weight, self.pad_id)
        values = self.values(y_true, y_pred)
        self.total.assign_add(tf.reduce_sum(tf.math.multiply_no_nan(values, weights)))
        self.tokens.assign_add(tf.reduce_sum(weights))

    def result(self):
        return tf.math.divide_no_nan(self.total.value, self.tokens.value)

    def get_config(self):
        return {**super().get_config(), "pad_id": self.pad_id}


@keras.saving.register_keras_serializable("kformer")
class TokenAccuracy(_TokenMean):
    """The share of target tokens whose logit is the highest, padding not counted.

    Args:
        pad_id: the label that marks padding.
        name: defaults to "accuracy".
    """

    def __init__(self, pad_id: int = PAD_ID, name="accuracy", **kwargs):
        super().__init__(pad_id, name=name, **kwargs)

    def values(self, y_true, y_pred):
        best = tf.argmax(y_pred, axis=-1, output_type=tf.int32)
        return tf.cast(tf.equal(best, tf.cast(y_true, tf.int32)), tf.float32)


@keras.saving.register_keras_serializable("kformer")
class Perplexity(_TokenMean):
    """exp(negative log-likelihood per target token), padding and label smoothing left out.

    Args:
        pad_id: the label that marks padding.
        name: defaults to "perplexity".
    """

    def __init__(self, pad_id: int = PAD_ID, name="perplexity", **kwargs):
        super().__init__(pad_id, name=name, **kwargs)

    def values(self, y_true, y_pred):
        return token_cross_entropy(y_true, y_pred)

    def result(self):
        return tf.exp(super().result())
