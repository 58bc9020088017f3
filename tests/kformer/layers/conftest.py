"""Every layer once more in numpy, written to be read: loops over rows, heads and queries."""

import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "swish": lambda x: x / (1 + np.exp(-x)),
}


def softmax(scores):
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def attention(query, key, value, mask=None):
    """One sequence: query (Q, d), key (K, d), value (K, e), mask (Q, K)."""
    weights = np.zeros((len(query), len(key)))
    for i, q in enumerate(query):
        seen = [j for j in range(len(key)) if mask is None or mask[i, j]]
        if seen:
            weights[i, seen] = softmax(np.array([q @ key[j] / math.sqrt(len(q)) for j in seen]))
    return weights @ value, weights


def multi_head_attention(layer, query, memory=None, mask=None):
    """From the layer's weights: (output, weights)."""
    d_model, heads = layer.d_model, layer.num_heads
    depth = d_model // heads
    memory = query if memory is None else memory
    batch, queries, keys = len(query), query.shape[1], memory.shape[1]
    mask = np.broadcast_to(True if mask is None else mask, (batch, heads, queries, keys))
    to_q, to_k, to_v = np.split(layer.qkv_kernel.numpy().astype("float64"), 3, axis=1)
    bias_q, bias_k, bias_v = np.split(layer.qkv_bias.numpy(), 3)
    context = np.zeros(query.shape)
    weights = np.zeros((batch, heads, queries, keys))
    for row in range(batch):
        q, k, v = query[row] @ to_q, memory[row] @ to_k, memory[row] @ to_v
        q, k, v = q + bias_q, k + bias_k, v + bias_v
        for head in range(heads):
            own = slice(head * depth, (head + 1) * depth)
            context[row, :, own], weights[row, head] = attention(
                q[:, own], k[:, own], v[:, own], mask[row, head]
            )
    return context @ layer.output_kernel.numpy() + layer.output_bias.numpy(), weights


def layer_norm(layer, x):
    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return normal * layer.gamma.numpy() + layer.beta.numpy()


def feed_forward(layer, x):
    inner = x @ layer.inner.kernel.numpy() + layer.inner.bias.numpy()
    activated = ACTIVATIONS[layer.activation](inner)
    return activated @ layer.outer.kernel.numpy() + layer.outer.bias.numpy()


def residual(layer, x, sublayer):
    if layer.norm == "pre":
        return x + sublayer(layer_norm(layer.layer_norm, x))
    return layer_norm(layer.layer_norm, x + sublayer(x))


def encoder_layer(layer, x, mask):
    x = residual(
        layer.self_attention_residual,
        x,
        lambda x: multi_head_attention(layer.self_attention, x, mask=mask)[0],
    )
    return residual(layer.feed_forward_residual, x, lambda x: feed_forward(layer.feed_forward, x))


def decoder_layer(layer, x, memory, mask, memory_mask):
    x = residual(
        layer.self_attention_residual,
        x,
        lambda x: multi_head_attention(layer.self_attention, x, mask=mask)[0],
    )
    x = residual(
        layer.cross_attention_residual,
        x,
        lambda x: multi_head_attention(layer.cross_attention, x, memory, memory_mask)[0],
    )
    return residual(layer.feed_forward_residual, x, lambda x: feed_forward(layer.feed_forward, x))


def sinusoid(position, column, d_model, halves):
    """The paper's formula, one number."""
    pair, cosine = (
        (column % (d_model // 2), column >= d_model // 2) if halves else divmod(column, 2)
    )
    angle = position / 10000 ** (2 * pair / d_model)
    return math.cos(angle) if cosine else math.sin(angle)


@pytest.fixture
def reference():
    return SimpleNamespace(
        attention=attention,
        multi_head_attention=multi_head_attention,
        layer_norm=layer_norm,
        feed_forward=feed_forward,
        residual=residual,
        encoder_layer=encoder_layer,
        decoder_layer=decoder_layer,
        sinusoid=sinusoid,
    )


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


@pytest.fixture
def random():
    """normal(*shape): float32."""
    generator = np.random.default_rng(0)
    return lambda *shape: generator.normal(size=shape).astype("float32")


@pytest.fixture
def randomize(random):
    """Gives every weight of a layer a random value: biases of 0 and scales of 1 hide mistakes."""

    def randomize(layer):
        for variable in layer.trainable_variables:
            variable.assign(0.4 * random(*variable.shape) + (variable.name == "gamma"))
        return layer

    return randomize
