import keras
import numpy as np
import pytest

from kformer.models import Transformer

OPTION_SETS = {
    "paper": dict(),
    "pre-norm, learned, untied": dict(
        norm="pre", positions="learned", max_length=40, tie="none", activation="gelu",
        source_vocab_size=13, num_decoder_layers=1,
    ),
    "marian": dict(
        positions="sinusoidal_halves", activation="swish", output_bias=True, num_encoder_layers=1
    ),
    "pre-norm, no positions, tied target": dict(
        norm="pre", positions="none", tie="target", scale_embedding=False, source_vocab_size=13
    ),
    "additive": dict(attention="additive", num_decoder_layers=1),
    "rotary": dict(norm="pre", positions="rotary", num_encoder_layers=1),
    "narrow embeddings": dict(tie="none", embedding_dim=5, source_vocab_size=13),
}  # fmt: skip


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


@pytest.fixture
def build():
    """A tiny Transformer, two layers deep, with a random value for every weight."""

    def build(**options):
        sizes = dict(
            source_vocab_size=11, target_vocab_size=11, d_model=8, num_heads=2, d_ff=12,
            num_encoder_layers=2, num_decoder_layers=2, dropout=0.0,
        )  # fmt: skip
        model = Transformer(**{**sizes, **options})
        random = np.random.default_rng(0)
        for variable in model.trainable_variables:
            noise = random.normal(size=variable.shape)
            variable.assign(0.4 * noise + (variable.name == "gamma"))
        return model

    return build


@pytest.fixture(params=OPTION_SETS)
def options(request):
    return OPTION_SETS[request.param]


@pytest.fixture
def batch():
    """(source, target), labels: three pairs of unequal lengths, the target shifted right."""
    source = np.array([[4, 5, 6, 7, 8], [9, 10, 0, 0, 0], [5, 4, 9, 0, 0]])
    labels = np.array([[6, 4, 3, 0], [9, 5, 10, 3], [3, 0, 0, 0]])
    target = np.array([[2, 6, 4, 0], [2, 9, 5, 10], [2, 0, 0, 0]])
    return (source, target), labels


@pytest.fixture
def padded():
    """Widens an array of ids by columns of padding."""
    return lambda ids, columns=20: np.pad(ids, [(0, 0), (0, columns)])
