"""A Transformer run as a CTranslate2 model: for its engine, and as a check of ours."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from kformer.errors import InputError
from kformer.layers import sinusoidal_positions
from kformer.models import SequenceModel, Transformer
from kformer.text import Tokenizers

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16")
# CTranslate2 has no position beyond its table. Longer texts than this are cut into parts anyway.
_POSITIONS = 1024
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH", "silu": "SWISH"}
_EPSILON = 1e-6


def write_ctranslate2(
    model: SequenceModel, tokenizers: Tokenizers, folder: Path, quantization: str = "float32"
) -> None:
    """Writes a folder that `ctranslate2.Translator` loads.

    It takes and gives pieces, not strings: the tokenizer files lie beside it.

    Args:
        model: in float32.
        tokenizers: its vocabularies.
        folder: to make.
        quantization: of the weights, one of `QUANTIZATIONS`.

    Raises:
        InputError: CTranslate2 is not installed, or has no such model.
    """
    try:
        from ctranslate2.specs import TransformerSpec, common_spec
    except ImportError as error:
        raise InputError(
            "ctranslate2 is not installed. Run: pip install 'kformer[convert]'"
        ) from error
    if not isinstance(model, Transformer):
        raise InputError(
            f"only a Transformer can be written for CTranslate2. Received: {type(model).__name__}"
        )
    if model.activation not in _ACTIVATIONS:
        raise InputError(
            f"CTranslate2 has {', '.join(_ACTIVATIONS)}. Received: model.activation "
            f"{model.activation}"
        )
    for key, lacks in (
        ("positions", model.positions == "rotary"),
        ("attention", model.attention == "additive"),
        ("embedding_dim", model.embedding_dim not in (None, model.d_model)),
    ):
        if lacks:
            raise InputError(
                f"CTranslate2 has no such model. Received: model.{key} {getattr(model, key)}"
            )
    spec = TransformerSpec.from_config(
        (model.num_encoder_layers, model.num_decoder_layers),
        model.num_heads,
        pre_norm=model.norm == "pre",
        activation=getattr(common_spec.Activation, _ACTIVATIONS[model.activation]),
        alignment_heads=model.num_heads,
    )
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _EPSILON
    (source_spec,) = spec.encoder.embeddings
    _set_embedding(spec.encoder, source_spec, model.source_embedding)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.target_embedding)
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            _set_layer(layer_spec, layer)
        if model.norm == "pre":
            _set_norm(side.layer_norm, stack.final_norm)
    output = model.output_projection
    table = model.target_embedding.embedding if output.tied else output.kernel
    spec.decoder.projection.weight = _array(table)
    if output.use_bias:
        spec.decoder.projection.bias = _array(output.bias)
    spec.register_source_vocabulary(tokenizers.source.pieces())
    spec.register_target_vocabulary(tokenizers.target.pieces())
    spec.validate()
    spec.optimize(None if quantization == "float32" else quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    tokenizers.save(folder)


def _set_embedding(side, spec, embedding) -> None:
    spec.weight = _array(embedding.embedding)
    side.scale_embeddings = embedding.scale
    if embedding.positions == "learned":
        table = _array(embedding.position_table)
    elif embedding.positions == "none":
        table = np.zeros([_POSITIONS, embedding.d_model], np.float32)
    else:
        halves = embedding.positions == "sinusoidal_halves"
        table = sinusoidal_positions(tf.range(_POSITIONS), embedding.d_model, halves).numpy()
    side.position_encodings.encodings = table


def _set_layer(spec, layer) -> None:
    attention, residual = layer.self_attention, layer.self_attention_residual
    _set_norm(spec.self_attention.layer_norm, residual.layer_norm)
    _set_attention(spec.self_attention.linear, attention, [slice(0, 3)])
    if hasattr(layer, "cross_attention"):
        _set_norm(spec.attention.layer_norm, layer.cross_attention_residual.layer_norm)
        _set_attention(spec.attention.linear, layer.cross_attention, [slice(0, 1), slice(1, 3)])
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_residual.layer_norm)
    for linear, dense in (
        (spec.ffn.linear_0, layer.feed_forward.inner),
        (spec.ffn.linear_1, layer.feed_forward.outer),
    ):
        linear.weight, linear.bias = _array(dense.kernel).T.copy(), _array(dense.bias)


def _set_attention(linears, attention, parts) -> None:
    """The linear layers of an attention: for each part some of (query, key, value); the output."""
    d_model = attention.d_model
    kernel = _array(attention.qkv_kernel)
    for linear, part in zip(linears[:-1], parts, strict=True):
        columns = slice(part.start * d_model, part.stop * d_model)
        linear.weight = kernel[:, columns].T.copy()
        if attention.use_bias:
            linear.bias = _array(attention.qkv_bias)[columns].copy()
    linears[-1].weight = _array(attention.output_kernel).T.copy()
    if attention.use_bias:
        linears[-1].bias = _array(attention.output_bias)


def _set_norm(spec, norm) -> None:
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable) -> np.ndarray:
    return np.array(tf.convert_to_tensor(variable), np.float32)
