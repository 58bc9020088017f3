"""Adam in one kernel a variable."""

import keras
import tensorflow as tf

from kformer.optimizers.whole_update import WholeUpdate


@keras.saving.register_keras_serializable("kformer")
class Adam(WholeUpdate):
    """Adam, each variable updated by TensorFlow's fused kernel.

    The same updates as `keras.optimizers.Adam`, which makes ten passes over memory where this
    makes one: on a CPU that is a third of a training step.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the gradient's mean.
        beta_2: decay of the squared gradient's mean.
        epsilon: added to the root of it.
        **kwargs: of `WholeUpdate`, such as `global_clipnorm` or `weight_decay`, which is
            decoupled (AdamW).

    Source:
        Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015; the defaults are those
        of Vaswani et al., 2017, section 5.3.
    """

    def __init__(
        self, learning_rate=1e-3, beta_1=0.9, beta_2=0.98, epsilon=1e-9, name="adam", **kwargs
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.momentums = self.add_optimizer_variables(variables, "momentum")
        self.velocities = self.add_optimizer_variables(variables, "velocity")

    def change(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        update = tf.cast(self.iterations.value, tf.float32) + 1
        # The kernel wants every number in the variable's own dtype.
        dtype = gradient.dtype
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.momentums[index].value.handle,
            v=self.velocities[index].value.handle,
            beta1_power=tf.cast(tf.pow(self.beta_1, update), dtype),
            beta2_power=tf.cast(tf.pow(self.beta_2, update), dtype),
            lr=tf.cast(learning_rate, dtype),
            # The gradient of an update that is left out is zero.
            beta1=tf.cast(self.unless_left_out(self.beta_1, 1.0), dtype),
            beta2=tf.cast(self.unless_left_out(self.beta_2, 1.0), dtype),
            epsilon=tf.cast(self.epsilon, dtype),
            grad=gradient,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
