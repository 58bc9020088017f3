"""What stands around every sub-layer: dropout, the residual sum and the norm."""

import keras

from kformer.choices import NormPosition
from kformer.layers.config import ArgumentsConfig
from kformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable("kformer")
class Residual(ArgumentsConfig, keras.layers.Layer):
    """Joins a sub-layer's output to its input, normalising before the sub-layer or after the sum.

    Post-norm, as in the paper: norm(x + dropout(sublayer(x))). Pre-norm, which trains without
    careful warm-up: x + dropout(sublayer(norm(x))). Either way a sub-layer is applied as
    `x = residual(x, sublayer(residual.prepare(x)))`.

    Args:
        norm: "pre" or "post".
        dropout: share of the sub-layer's output to drop in training.

    Call arguments:
        x: the sub-layer's input before `prepare`, float tensor (batch, length, d_model).
        output: the sub-layer's output, a tensor like `x`.
        training: whether dropout is on.

    Returns:
        A tensor like `x`.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 5.4; Xiong et al., "On Layer
        Normalization in the Transformer Architecture", 2020.
    """

    def __init__(self, norm: NormPosition = "pre", dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        if norm not in NormPosition.__args__:
            raise ValueError(f'`norm` must be "pre" or "post". Received: norm={norm!r}')
        self.norm = norm
        self.dropout = dropout
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=1e-6, dtype=self.dtype_policy, name="layer_norm"
        )
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, x_shape, output_shape=None):
        self.layer_norm.build(x_shape)
        self.output_dropout.build(x_shape)
        self.built = True

    def prepare(self, x):
        """What the sub-layer is to be given: the normalised input in pre-norm, else the input."""
        return self.layer_norm(x) if self.norm == "pre" else x

    def call(self, x, output, training=False):
        total = x + self.output_dropout(output, training=training)
        return total if self.norm == "pre" else self.layer_norm(total)
