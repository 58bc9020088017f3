"""Muon for the matrices inside the layers, Adam for all else."""

import keras
import tensorflow as tf

from kformer.optimizers.adam import Adam
from kformer.optimizers.whole_update import WholeUpdate


@keras.saving.register_keras_serializable("kformer")
class Muon(Adam):
    """Momentum, orthogonalised, for the matrices inside the layers; Adam for all else.

    The update of a matrix is the nearest matrix with equal singular values to its momentum, so
    that all directions are learned at one speed. It is scaled to the size that Adam's updates
    have at the same rate. Adam's are biases, norms, and the tables of embeddings and output
    layers, known by "embedding" or "output_projection" in a variable's path.

    Differs from `keras.optimizers.Muon` in three ways: a fused projection of query, key and value
    is three matrices, not one, and one of a recurrent layer's gates as many as there are gates;
    the products of the iteration are made in `compute_dtype`; Adam's
    share is fused.

    Args:
        learning_rate: a float or a schedule.
        momentum: decay of the momentum, which is Nesterov's.
        adam_rate_ratio: Adam's learning rate as a share of `learning_rate`.
        iterations_newton_schulz: steps of the orthogonalising iteration.
        compute_dtype: dtype of its products; the published recipe uses bfloat16.
        beta_1, beta_2, epsilon: of Adam.
        **kwargs: of `keras.optimizers.Optimizer`, such as `weight_decay`.

    Source:
        Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; scale from
        Liu et al., "Muon is Scalable for LLM Training", 2025.
    """

    # Coefficients of the quintic iteration, chosen by the authors for its slope at zero.
    QUINTIC = (3.4445, -4.7750, 2.0315)
    RMS_OF_ADAM = 0.2

    def __init__(
        self,
        learning_rate=1e-3,
        momentum=0.95,
        adam_rate_ratio=0.4,
        iterations_newton_schulz=5,
        compute_dtype="float32",
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
        name="muon",
        **kwargs,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)
        self.momentum = momentum
        self.adam_rate_ratio = adam_rate_ratio
        self.iterations_newton_schulz = iterations_newton_schulz
        self.compute_dtype = compute_dtype

    def build(self, variables):
        if self.built:
            return
        WholeUpdate.build(self, variables)
        self.momentums = self.add_optimizer_variables(variables, "momentum")
        self.velocities = [
            None
            if _is_hidden_matrix(variable)
            else self.add_variable_from_reference(variable, name="velocity")
            for variable in variables
        ]
        self._blocks = [_side_by_side(variable) for variable in variables]

    def change(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        if self.velocities[index] is not None:
            super().change(gradient, variable, learning_rate * self.adam_rate_ratio)
            return
        momentum = self.momentums[index].value
        # The gradient of an update that is left out is zero.
        decay = tf.cast(self.unless_left_out(self.momentum, 1.0), momentum.dtype)
        momentum.assign(decay * momentum + gradient)
        ahead = gradient + self.momentum * momentum
        blocks = tf.stack(tf.split(ahead, self._blocks[index], axis=1))
        scale = self.RMS_OF_ADAM * max(blocks.shape[1:]) ** 0.5
        update = tf.concat(tf.unstack(self.orthogonalize(blocks)), axis=1)
        update = tf.cast(learning_rate, tf.float32) * scale * update
        variable.assign_sub(tf.cast(update, variable.dtype))

    def orthogonalize(self, matrices):
        """The matrices (count, rows, columns) with all singular values near 1, as float32."""
        a, b, c = self.QUINTIC
        wide = matrices.shape[1] <= matrices.shape[2]
        x = matrices if wide else tf.linalg.matrix_transpose(matrices)
        x /= tf.norm(x, axis=(1, 2), keepdims=True) + 1e-7
        x = tf.cast(x, self.compute_dtype)
        identity = tf.eye(tf.shape(x)[1], dtype=self.compute_dtype)
        for _ in range(self.iterations_newton_schulz):
            square = tf.matmul(x, x, transpose_b=True)
            polynomial = a * identity + b * square + c * tf.matmul(square, square)
            x = tf.matmul(polynomial, x)
        return tf.cast(x if wide else tf.linalg.matrix_transpose(x), tf.float32)

    def get_config(self):
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "adam_rate_ratio": self.adam_rate_ratio,
            "iterations_newton_schulz": self.iterations_newton_schulz,
            "compute_dtype": self.compute_dtype,
        }


# How many matrices lie side by side in a variable whose path ends so.
_FUSED = {
    "qkv_kernel": 3, "lstm_kernel": 4, "lstm_recurrent_kernel": 4, "gru_kernel": 3,
    "gru_recurrent_kernel": 3,
}  # fmt: skip


def _is_hidden_matrix(variable) -> bool:
    tables = ("embedding", "output_projection")
    return len(variable.shape) == 2 and not any(name in variable.path for name in tables)


def _side_by_side(variable) -> int:
    """How many matrices a variable holds."""
    return next((n for name, n in _FUSED.items() if variable.path.endswith(name)), 1)
