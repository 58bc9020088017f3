import functools

import keras
import numpy as np
import pytest

from kformer.models import LanguageModel, Recurrent, Transformer

TRANSFORMERS = {
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


RECURRENT = {
    "lstm, dot product": dict(),
    "gru, additive and fed, both directions": dict(
        cell="gru", attention="additive", input_feeding=True, bidirectional=True, tie="target",
        source_vocab_size=13, num_encoder_layers=1, output_bias=True,
    ),
    "lstm, additive, both directions": dict(
        attention="additive", bidirectional=True, num_decoder_layers=1
    ),
    "gru, dot product and fed": dict(cell="gru", input_feeding=True, num_decoder_layers=1),
    "lstm, no attention, both directions": dict(
        attention="none", bidirectional=True, tie="none", embedding_dim=6
    ),
    "gru, no attention": dict(cell="gru", attention="none", num_encoder_layers=1),
}  # fmt: skip
LANGUAGE_MODELS = {
    "pre-norm": dict(),
    "learned, untied": dict(positions="learned", max_length=40, tie="none", activation="gelu"),
    "post-norm, halves": dict(
        norm="post", positions="sinusoidal_halves", activation="swish", output_bias=True
    ),
    "rotary": dict(positions="rotary", tie="none", embedding_dim=6),
    "additive": dict(attention="additive", num_decoder_layers=1),
    "no positions": dict(positions="none", scale_embedding=False, num_decoder_layers=1),
}


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


def make_transformer(**options):
    """A tiny Transformer, two layers deep, with a random value for every weight."""
    sizes = dict(
        source_vocab_size=11, target_vocab_size=11, d_model=8, num_heads=2, d_ff=12,
        num_encoder_layers=2, num_decoder_layers=2, dropout=0.0,
    )  # fmt: skip
    return with_random_weights(Transformer(**{**sizes, **options}))


def make_recurrent(**options):
    """The same of a recurrent model."""
    sizes = dict(source_vocab_size=11, target_vocab_size=11, d_model=8, dropout=0.0)
    return with_random_weights(Recurrent(**{**sizes, **options}))


def make_language_model(**options):
    """The same of a language model."""
    sizes = dict(vocab_size=11, d_model=8, num_heads=2, d_ff=12, num_decoder_layers=2, dropout=0.0)
    return with_random_weights(LanguageModel(**{**sizes, **options}))


def with_random_weights(model):
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        noise = random.normal(size=variable.shape)
        variable.assign(0.4 * noise + (variable.name == "gamma"))
    return model


MODELS = {
    f"{kind}: {name}": (make, options)
    for kind, make, sets in (
        ("transformer", make_transformer, TRANSFORMERS),
        ("recurrent", make_recurrent, RECURRENT),
        ("language model", make_language_model, LANGUAGE_MODELS),
    )
    for name, options in sets.items()
}


@pytest.fixture
def build():
    return make_transformer


@pytest.fixture(params=TRANSFORMERS)
def options(request):
    return TRANSFORMERS[request.param]


# Options whose parts other sets have, too.
SLOW = {
    "transformer: marian", "transformer: narrow embeddings", "recurrent: gru, no attention",
    "recurrent: gru, dot product and fed", "language model: post-norm, halves",
    "language model: no positions",
}  # fmt: skip


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MODELS]
)
def build_any(request):
    """Makes a model of each kind and each set of options in turn."""
    make, options = MODELS[request.param]
    return functools.partial(make, **options)


@pytest.fixture(params=[make_transformer, make_recurrent, make_language_model])
def build_kind(request):
    """Makes a model of each kind in turn."""
    return request.param


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
