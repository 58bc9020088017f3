"""What a Transformer lets one choose by name. Imports nothing, so that a command line that only
checks its options need not wait for TensorFlow."""

from typing import Literal

Activation = Literal["relu", "gelu", "swish"]
NormPosition = Literal["pre", "post"]
Positions = Literal["sinusoidal", "sinusoidal_halves", "learned", "none"]
Tying = Literal["none", "target", "all"]
