"""Training and evaluation that every kformer model shares: tokens are the unit."""

import keras
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy


class SequenceModel(keras.Model):
    """A Keras model from ids to logits whose updates are means over target tokens.

    Loss and gradients are sums over real target tokens divided by their number over the whole
    update, all replicas together, so however a batch is padded or split the update is the same.
    A batch is `(inputs, labels)` or `(inputs, labels, sample_weight)`; `call(inputs)` gives
    float32 logits (batch, length, vocab_size) for labels (batch, length).

    Validation reports the plain negative log-likelihood, without label smoothing: its exponential
    is the perplexity.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.token_loss = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        # Keras' own tracker of the loss, a mean over sentences, makes room for ours.
        others = [metric for metric in super().metrics if metric.name != self.token_loss.name]
        return [self.token_loss, *others]

    def train_step(self, data):
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            logits = self(inputs, training=True)
            loss, tokens = self._loss_sums(labels, logits, sample_weight)
            # Replicas' gradients are summed, so each divides by the tokens of all.
            all_tokens = tf.distribute.get_replica_context().all_reduce("SUM", tokens)
            scaled = self.optimizer.scale_loss(tf.math.divide_no_nan(loss, all_tokens))
        gradients = tape.gradient(scaled, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        return self._logs(inputs, labels, logits, sample_weight, loss, tokens)

    def test_step(self, data):
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        logits = self(inputs, training=False)
        loss, tokens = self._loss_sums(labels, logits, sample_weight, smooth=False)
        return self._logs(inputs, labels, logits, sample_weight, loss, tokens)

    def _loss_sums(self, labels, logits, sample_weight, smooth=True):
        if not isinstance(self.loss, MaskedCrossEntropy):
            raise ValueError(
                "`compile` needs a kformer.losses.MaskedCrossEntropy as `loss`; others count "
                f"padding. Received: loss={self.loss!r}"
            )
        return self.loss.sums(labels, logits, sample_weight, smooth)

    def _logs(self, inputs, labels, logits, sample_weight, loss, tokens):
        self.token_loss.update_state(tf.math.divide_no_nan(loss, tokens), sample_weight=tokens)
        logs = self.compute_metrics(inputs, labels, logits, sample_weight)
        return {**logs, "loss": self.token_loss.result()}
