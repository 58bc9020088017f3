"""What holds for every layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import (
    AdditiveAttention,
    Decoder,
    DecoderLayer,
    DotProductAttention,
    Dropout,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    PositionalEmbedding,
    PositionwiseFeedForward,
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentLayer,
    Residual,
)
from kformer.layers.output import OutputProjection

FLOATS = (2, 3, 8)
SIZES = dict(d_model=8, num_heads=2, d_ff=12, norm="post", activation="gelu", dropout=0.2)
# (class, arguments, shapes of float inputs); the embedding's input is made of ids.
LAYERS = [
    (Dropout, dict(rate=0.25, seed=3), [FLOATS]),
    (MultiHeadAttention, dict(d_model=8, num_heads=2, dropout=0.1, use_bias=False), [FLOATS]),
    (MultiHeadAttention, dict(d_model=8, num_heads=2), [FLOATS, (2, 5, 8)]),
    (MultiHeadAttention, dict(d_model=8, num_heads=2, rotary=True), [FLOATS]),
    (MultiHeadAttention, dict(d_model=8, num_heads=2, score="additive"), [FLOATS, (2, 5, 8)]),
    (PositionwiseFeedForward, dict(d_model=8, d_ff=12, activation="swish", dropout=0.3), [FLOATS]),
    (Residual, dict(norm="post", dropout=0.3), [FLOATS, FLOATS]),
    (Residual, dict(norm="pre"), [FLOATS, FLOATS]),
    (EncoderLayer, {**SIZES, "attention_dropout": 0.1, "score": "additive"}, [FLOATS]),
    (DecoderLayer, {**SIZES, "activation_dropout": 0.1}, [FLOATS, (2, 5, 8)]),
    (Encoder, dict(num_layers=1, **{**SIZES, "norm": "pre"}, rotary=True), [FLOATS]),
    (Decoder, dict(num_layers=1, **{**SIZES, "norm": "pre"}, rotary=True), [FLOATS, (2, 5, 8)]),
    (DotProductAttention, dict(dropout=0.1), [FLOATS, (2, 5, 6)]),
    (DotProductAttention, dict(project_query=False), [FLOATS, (2, 5, 8)]),
    (AdditiveAttention, dict(units=7, dropout=0.1), [FLOATS, (2, 5, 6)]),
    (RecurrentLayer, dict(units=7, cell="lstm", reverse=True), [FLOATS]),
    (RecurrentLayer, dict(units=7, cell="gru"), [FLOATS]),
    (RecurrentEncoder, dict(num_layers=2, d_model=6, cell="gru", dropout=0.2), [FLOATS]),
    (RecurrentEncoder, dict(num_layers=1, d_model=6, bidirectional=True), [FLOATS]),
    (RecurrentDecoder, dict(num_layers=2, d_model=6, dropout=0.2), [FLOATS, (2, 5, 7)]),
    (
        RecurrentDecoder,
        dict(num_layers=1, d_model=6, cell="gru", attention="additive", input_feeding=True),
        [FLOATS, (2, 5, 7)],
    ),
    (RecurrentDecoder, dict(num_layers=2, d_model=6, attention="none", dropout=0.2), [FLOATS]),
    (PositionalEmbedding, dict(vocab_size=7, d_model=8, dropout=0.1, scale=False), None),
    (
        PositionalEmbedding,
        dict(vocab_size=7, d_model=8, positions="learned", max_length=4),
        None,
    ),
    (PositionalEmbedding, dict(vocab_size=7, d_model=8, positions="rotary"), None),
    (PositionalEmbedding, dict(vocab_size=7, d_model=8, embedding_dim=5), None),
    (OutputProjection, dict(vocab_size=7, d_model=8, use_bias=True), [FLOATS]),
    (OutputProjection, dict(vocab_size=7, d_model=8, tied=True), [FLOATS, (7, 8)]),
]


def with_layers(layers):
    return pytest.mark.parametrize(
        ("cls", "arguments", "shapes"),
        layers,
        ids=[f"{cls.__name__}{index}" for index, (cls, *_) in enumerate(layers)],
    )


EVERY_LAYER = with_layers(LAYERS)


@pytest.fixture
def inputs(shapes, random):
    if shapes is None:
        return [tf.constant([[1, 2, 3], [6, 0, 0]])]
    return [tf.constant(random(*shape)) for shape in shapes]


@EVERY_LAYER
def test_comes_back_from_its_config_with_every_argument(cls, arguments, shapes):
    layer = cls(**arguments, dtype="mixed_bfloat16", name="mine")
    config = keras.saving.serialize_keras_object(layer)
    assert config["registered_name"] == f"kformer>{cls.__name__}"
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is cls
    assert again.name == "mine" and again.dtype_policy.name == "mixed_bfloat16"
    assert arguments.items() <= again.get_config().items()
    assert again.get_config() == layer.get_config()


@EVERY_LAYER
def test_build_makes_every_variable(cls, arguments, shapes, inputs):
    layer = cls(**arguments)
    layer.build(*(tensor.shape for tensor in inputs))
    paths = [variable.path for variable in layer.variables]
    layer(*inputs, training=True)
    assert [variable.path for variable in layer.variables] == paths
    assert len(set(paths)) == len(paths)


@EVERY_LAYER
def test_graph_and_eager_agree_and_neither_sets_an_implicit_mask(cls, arguments, shapes, inputs):
    layer = cls(**arguments)
    eager = layer(*inputs)
    signature = [tf.TensorSpec([None] * (t.shape.rank - 1) + t.shape[-1:], t.dtype) for t in inputs]
    if shapes is None:
        signature = [tf.TensorSpec([None, None], tf.int32)]
    graph = tf.function(lambda *inputs: layer(*inputs), input_signature=signature)(*inputs)
    np.testing.assert_allclose(graph, eager, atol=1e-6)
    assert getattr(eager, "_keras_mask", None) is None


@EVERY_LAYER
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_computes_in_half_and_keeps_variables_in_float32(
    dtype, cls, arguments, shapes, inputs
):
    half = dtype.removeprefix("mixed_")
    layer = cls(**arguments, dtype=dtype)
    output = layer(*inputs, training=True)
    assert output.dtype == ("float32" if cls is OutputProjection else half)
    assert all(variable.dtype == "float32" for variable in layer.trainable_variables)
    plain = cls(**arguments)
    plain.build(*(tensor.shape for tensor in inputs))
    for mine, other in zip(plain.trainable_variables, layer.trainable_variables, strict=True):
        mine.assign(other)
    np.testing.assert_allclose(
        tf.cast(layer(*inputs), "float32"), plain(*inputs), atol=0.1, rtol=0.05
    )


@EVERY_LAYER
@pytest.mark.filterwarnings("ignore:Layer .* does not support masking")
def test_implicit_masks_of_inputs_change_nothing(cls, arguments, shapes, inputs):
    layer = cls(**arguments)
    expected = layer(*inputs).numpy()
    for tensor in inputs:
        tensor._keras_mask = tf.constant([[True, False, False], [False, False, False]])
    output = layer(*inputs)
    np.testing.assert_array_equal(output, expected)
    if cls is not Dropout:  # gives back its input as it is
        assert getattr(output, "_keras_mask", None) is None


@EVERY_LAYER
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_computes_where_all_is_of_one_precision(dtype, cls, arguments, shapes, inputs):
    layer = cls(**arguments, dtype=dtype)
    output = layer(*inputs)
    assert output.dtype == ("float32" if cls is OutputProjection else dtype)
    assert all(variable.dtype == dtype for variable in layer.trainable_variables)
    plain = cls(**arguments)
    plain.build(*(tensor.shape for tensor in inputs))
    for mine, other in zip(plain.trainable_variables, layer.trainable_variables, strict=True):
        mine.assign(other)
    np.testing.assert_allclose(
        tf.cast(output, "float32"),
        plain(*inputs),
        atol=1e-5 if dtype == "float64" else 0.1,
        rtol=0.05,
    )


# A table, which a tied output is given, has no batch axis.
@with_layers([layer for layer in LAYERS if not layer[1].get("tied")])
def test_functional_model_infers_what_the_layer_computes(cls, arguments, shapes, inputs):
    layer = cls(**arguments, dtype="mixed_bfloat16")
    dtype = tf.int32 if shapes is None else tf.float32
    symbols = [keras.Input([None, *t.shape[2:]], dtype=dtype) for t in inputs]
    inferred, output = layer(*symbols), layer(*inputs)
    assert inferred.shape == (None, None, output.shape[-1])
    assert inferred.dtype == output.dtype.name
