"""What all optimizers here do alike before a variable is updated."""

import keras
import tensorflow as tf


class WholeUpdate(keras.optimizers.Optimizer):
    """An optimizer whose update is made of the whole batch, or not at all.

    Gradients are added up over all replicas before they are clipped, so that the update does not
    depend on how a batch is split over devices. Where one of them is NaN or infinite, the update
    is left out: no weight, no slot and not the number of updates changes.

    Args:
        learning_rate: a float or a schedule.
        global_clipnorm: longest gradient, all variables together; longer ones are scaled down.
        loss_scale: the first factor of a dynamic loss scale, for float16: halved when gradients
            overflow, doubled after `GROWTH_UPDATES` without. None: none. Compile the model with
            `auto_scale_loss=False`.
        average_decay: decay of an exponential moving average of the weights, such as 0.999; early
            in training it is lower, n / (n + 9) at update n from 0. None: no average.
        **kwargs: of `keras.optimizers.Optimizer`, such as `weight_decay`.

    Attributes:
        left_out: how many updates were left out, int64 variable.
        left_out_in_a_row: how many of them since the last that was not, int64 variable.
        gradient_norm: length of the last gradient before it was clipped, float32 variable.
        averages: the averages of the trained variables, in their order; empty without a decay.
    """

    GROWTH_UPDATES = 2000

    def __init__(
        self,
        learning_rate=1e-3,
        global_clipnorm=None,
        loss_scale=None,
        average_decay=None,
        name=None,
        **kwargs,
    ):
        if kwargs.get("gradient_accumulation_steps"):
            raise ValueError(
                "Keras' `gradient_accumulation_steps` takes means of means, drops what is left "
                "over and runs schedules too fast; set `accumulate` of the model. "
                f"Received: gradient_accumulation_steps={kwargs['gradient_accumulation_steps']}"
            )
        if kwargs.get("clipnorm") or kwargs.get("clipvalue"):
            raise ValueError(
                "Clipping each variable by itself is not supported; use `global_clipnorm`. "
                f"Received: clipnorm={kwargs.get('clipnorm')}, "
                f"clipvalue={kwargs.get('clipvalue')}"
            )
        kwargs = {key: value for key, value in kwargs.items() if value is not None}
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        # Not the base class': that clips what each replica has by itself.
        self.longest_gradient = global_clipnorm
        self.loss_scale = loss_scale
        self.average_decay = average_decay
        self._finite = None

    def build(self, variables):
        if self.built:
            return
        super().build(variables)

        def number(name, dtype, initial=0):
            return self.add_variable(
                (), keras.initializers.Constant(initial), dtype, "only_first_replica", name=name
            )

        self.averages = []
        if self.average_decay is not None:
            self.averages = self.add_optimizer_variables(variables, "average")
        self.left_out = number("left_out", "int64")
        self.left_out_in_a_row = number("left_out_in_a_row", "int64")
        self.gradient_norm = number("gradient_norm", "float32")
        if self.loss_scale is not None:
            self.scale = number("loss_scale", "float32", self.loss_scale)
            self.since_scaled = number("since_scaled", "int64")

    def scale_loss(self, loss):
        if self.loss_scale is None or not self.built:
            return super().scale_loss(loss)
        return loss * tf.cast(self.scale.value, loss.dtype)

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        # Dense: the norm of slices would take each occurrence of an id for itself.
        grads = [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
        there = [grad for grad in grads if grad is not None]
        replicas = tf.distribute.get_replica_context()
        if replicas.num_replicas_in_sync > 1:
            there = replicas.all_reduce("SUM", there)
        if self.loss_scale is not None:
            there = [grad / tf.cast(self.scale.value, grad.dtype) for grad in there]
        norm = tf.linalg.global_norm([tf.cast(grad, tf.float32) for grad in there])
        finite = tf.math.is_finite(norm)
        factor = 1.0
        if self.longest_gradient is not None:
            factor = self.longest_gradient / tf.maximum(norm, self.longest_gradient)
        factor = tf.where(finite, factor, 0.0)
        # One pass; a product with zero is zero there, whatever the gradient.
        there = iter([tf.math.multiply_no_nan(g, tf.cast(factor, g.dtype)) for g in there])
        self._finite = finite
        try:
            super().apply(
                [None if grad is None else next(there) for grad in grads], trainable_variables
            )
        finally:
            self._finite = None
        self._count(finite, norm)

    def update_step(self, gradient, variable, learning_rate):
        self.change(gradient, variable, learning_rate)
        if self.average_decay is not None:
            average = self.averages[self._get_variable_index(variable)].value
            update = tf.cast(self.iterations.value, tf.float32)
            decay = tf.minimum(self.average_decay, update / (update + 9))
            share = tf.cast(self.unless_left_out(1 - decay, 0.0), average.dtype)
            # The first time it becomes the weight itself.
            average.assign_add(share * (tf.convert_to_tensor(variable) - average))

    def change(self, gradient, variable, learning_rate):
        """Updates one variable."""
        raise NotImplementedError

    def unless_left_out(self, value, otherwise):
        """Within an update: `value`, or `otherwise` where the update is left out."""
        return value if self._finite is None else tf.where(self._finite, value, otherwise)

    @property
    def learning_rate(self):
        """The rate of the next update; within one that is left out, zero."""
        rate = super().learning_rate
        return rate if self._finite is None else self.unless_left_out(rate, 0.0)

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        keras.optimizers.Optimizer.learning_rate.fset(self, learning_rate)

    def _count(self, finite, norm) -> None:
        out = tf.cast(~finite, tf.int64)
        # The base class has counted it.
        self.iterations.assign_sub(tf.cast(out, self.iterations.dtype))
        self.left_out.assign_add(out)
        self.left_out_in_a_row.assign((self.left_out_in_a_row.value + 1) * out)
        self.gradient_norm.assign(norm)
        if self.loss_scale is None:
            return
        since = (self.since_scaled.value + 1) * (1 - out)
        grow = since == self.GROWTH_UPDATES
        change = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
        # At the smallest scale, what does not fit was no overflow.
        self.scale.assign(tf.maximum(self.scale.value * change, 1.0))
        self.since_scaled.assign(tf.where(grow, tf.zeros_like(since), since))

    def _all_reduce_sum_gradients(self, grads_and_vars):
        # Keras adds up the replicas' gradients after it has clipped them. They are added up
        # already, and there is no public way to say so.
        return list(grads_and_vars)

    def get_config(self):
        return {
            **super().get_config(),
            "global_clipnorm": self.longest_gradient,
            "loss_scale": self.loss_scale,
            "average_decay": self.average_decay,
        }
