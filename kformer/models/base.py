"""Training and evaluation that every kformer model shares: tokens are the unit."""

import keras
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy, token_weights


class SequenceModel(keras.Model):
    """A Keras model from ids to logits whose updates are means over target tokens.

    Loss and gradients are sums over real target tokens divided by their number over the whole
    update, all replicas and parts together, so however a batch is padded or split the update is
    the same. A batch is `(inputs, labels)` or `(inputs, labels, sample_weight)`; `call(inputs)`
    gives float32 logits (batch, length, vocab_size) for labels (batch, length).

    Validation reports the plain negative log-likelihood, without label smoothing: its exponential
    is the perplexity.

    Attributes:
        accumulate: into how many parts `fit` divides each batch, to hold the activations of one
            at a time; the update is that of the whole batch. Set it before `fit`; default 1.
        seen: sum of the training losses, number of target tokens and number of target positions,
            padding included, so far, of all replicas and workers, float64 (3,); unlike the metrics
            it can be read at any time, on one of them.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.token_loss = keras.metrics.Mean(name="loss")
        self.accumulate = 1
        self.seen = tf.Variable(
            tf.zeros([3], tf.float64),
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @property
    def max_positions(self) -> int | None:
        """Most positions of a side that the model has room for. None: any number."""
        return None

    @property
    def one_sequence(self) -> bool:
        """Whether the target stands behind its source, so that both share `max_positions`."""
        return False

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers and heads whose attention to the source `call_with_attention` gives; (0, 0): the
        model has none."""
        return 0, 0

    @property
    def metrics(self):
        # Keras' own tracker of the loss, a mean over sentences, makes room for ours.
        others = [metric for metric in super().metrics if metric.name != self.token_loss.name]
        return [self.token_loss, *others]

    def train_step(self, data):
        batch = keras.utils.unpack_x_y_sample_weight(data)
        _, labels, sample_weight = batch
        # Replicas' gradients are summed, so each divides by the tokens of all.
        tokens = self._checked_loss().token_count(labels, sample_weight)
        tokens = tf.distribute.get_replica_context().all_reduce("SUM", tokens)
        if self.accumulate == 1:
            gradients, sums = self._gradients(batch, tokens)
        else:
            gradients, sums = self._accumulated_gradients(batch, tokens)
        self.seen.assign_add(tf.distribute.get_replica_context().all_reduce("SUM", sums))
        self.optimizer.apply(gradients, self.trainable_weights)
        return _for_strategy(self._results())

    def test_step(self, data):
        batch = keras.utils.unpack_x_y_sample_weight(data)
        logits = self(batch[0], training=False)
        loss, tokens = self._checked_loss().sums(batch[1], logits, batch[2], smooth=False)
        self._update_metrics(batch, logits, loss, tokens)
        return _for_strategy(self._results())

    def _gradients(self, batch, all_tokens):
        """What a batch, or a part of it, adds to the update's gradients, and to `seen`."""
        inputs, labels, sample_weight = batch
        with tf.GradientTape() as tape:
            logits = self(inputs, training=True)
            loss, tokens = self._checked_loss().sums(labels, logits, sample_weight)
            scaled = self.optimizer.scale_loss(tf.math.divide_no_nan(loss, all_tokens))
        gradients = tape.gradient(scaled, self.trainable_weights)
        # An update that is left out for its gradients must not ruin a round's figures.
        counted = tf.cast(tf.math.is_finite(loss), tf.float32)
        weights = token_weights(labels, sample_weight, self.loss.pad_id)
        shown = tf.math.multiply_no_nan(weights, counted)
        loss, tokens = (tf.math.multiply_no_nan(part, counted) for part in (loss, tokens))
        self._update_metrics((inputs, labels, shown), logits, loss, tokens)
        positions = tf.cast(tf.size(labels), tf.float32)
        return gradients, tf.cast([loss, tokens, positions], tf.float64)

    def _accumulated_gradients(self, batch, all_tokens):
        """The same, one part of the batch after another."""
        inputs, labels, sample_weight = batch
        parts = (
            tf.nest.map_structure(lambda x: _in_parts(x, self.accumulate), inputs),
            _in_parts(labels, self.accumulate, self.loss.pad_id),
            None if sample_weight is None else _in_parts(sample_weight, self.accumulate),
        )

        def add_part(i, totals, seen):
            part = tf.nest.map_structure(lambda x: None if x is None else x[i], parts)
            gradients, sums = self._gradients(part, all_tokens)
            totals = [
                total if gradient is None else total + gradient
                for total, gradient in zip(totals, gradients, strict=True)
            ]
            return i + 1, totals, seen + sums

        zeros = [tf.zeros(weight.shape, weight.dtype) for weight in self.trainable_weights]
        nothing = tf.zeros([3], tf.float64)
        _, gradients, sums = tf.while_loop(
            lambda i, *_: i < self.accumulate, add_part, (0, zeros, nothing), parallel_iterations=1
        )
        return gradients, sums

    def _checked_loss(self) -> MaskedCrossEntropy:
        if not isinstance(self.loss, MaskedCrossEntropy):
            raise ValueError(
                "`compile` needs a kformer.losses.MaskedCrossEntropy as `loss`; others count "
                f"padding. Received: loss={self.loss!r}"
            )
        return self.loss

    def _update_metrics(self, batch, logits, loss, tokens):
        inputs, labels, sample_weight = batch
        self.token_loss.update_state(tf.math.divide_no_nan(loss, tokens), sample_weight=tokens)
        self.compute_metrics(inputs, labels, logits, sample_weight)

    def _results(self):
        return {**self.get_metrics_result(), "loss": self.token_loss.result()}

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Builds optimizer and metrics with what the first replica here is given.

        Keras' own does so with the mean of the batches of all replicas, which fails where their
        shapes differ, and on several workers always; and before each validation it takes a batch
        that is then not validated on.
        """
        metrics = self._compile_metrics
        if self._distribute_strategy is None or metrics is None or metrics.built:
            return
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = tf.nest.map_structure(
                    lambda value: self.distribute_strategy.experimental_local_results(value)[0],
                    next(batches),
                )
                break
        super()._maybe_symbolic_build(data_batch=data_batch)


def _in_parts(tensor, count, padding_value=0):
    """(count, rows, ...) of (batch, ...), with rows of padding where they do not come out even."""
    rows = -(-tf.shape(tensor)[0] // count)
    missing = count * rows - tf.shape(tensor)[0]
    padding = [[0, missing], *[[0, 0]] * (tensor.shape.rank - 1)]
    padded = tf.pad(tensor, padding, constant_values=padding_value)
    return tf.reshape(padded, [count, rows, *tf.unstack(tf.shape(tensor)[1:])])


def _for_strategy(logs):
    """Logs in the shape in which Keras can take their mean over workers."""
    if isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return {name: tf.reshape(value, [1]) for name, value in logs.items()}
    return logs
