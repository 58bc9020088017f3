"""What models let one choose by name. Imports nothing, so that a command line that only checks its
options need not wait for TensorFlow."""

from typing import Literal

Activation = Literal["relu", "gelu", "swish"]
AttentionKind = Literal["dot_product", "additive", "none"]
AttentionScore = Literal["dot_product", "additive"]
Cell = Literal["lstm", "gru"]
ModelKind = Literal["transformer", "recurrent", "language_model"]
NormPosition = Literal["pre", "post"]
Positions = Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary", "none"]
Tying = Literal["none", "target", "all"]
