import math

import numpy as np
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy
from kformer.models import Transformer

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
IDS = tf.TensorSpec([None, None], tf.int64)


def test_source_order_matters_with_positions_only(build):
    source, swapped, target = [[4, 5, 6]], [[6, 5, 4]], np.array([[2, 4]])
    for positions, matters in (
        ("sinusoidal", True), ("sinusoidal_halves", True), ("rotary", True), ("none", False)
    ):  # fmt: skip
        model = build(positions=positions)
        difference = model((np.array(source), target)) - model((np.array(swapped), target))
        assert (np.abs(difference).max() > 1e-4) == matters, positions


def test_a_step_reads_nothing_that_the_cache_holds_after_it(build, batch):
    model = build()
    (source, _), _ = batch
    state = model.init_state(model.encode(source), 1, 3)
    stale = tf.nest.map_structure(lambda cache: cache + 9, state.sentences.caches)
    dirty = state._replace(sentences=state.sentences._replace(caches=stale))
    tokens = tf.constant([2, 4, 5])
    np.testing.assert_array_equal(model.step(tokens, dirty)[0], model.step(tokens, state)[0])


def test_rotary_positions_turn_self_attention_only(build):
    model = build(positions="rotary")
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert layer.self_attention.rotary
    assert not any(layer.cross_attention.rotary for layer in model.decoder.layers)
    ids = np.array([[4, 5, 4]])
    embedded = model.source_embedding(ids)
    np.testing.assert_array_equal(embedded[0, 0], embedded[0, 2])


def parameters(vocab_size, d, d_ff, layers):
    """By hand, from the paper: one table, and no bias where it has none."""
    attention = 4 * (d * d + d)
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    norm = 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return vocab_size * d + layers * (encoder + decoder)


@pytest.mark.parametrize(
    ("preset", "sizes", "millions"),
    [("base", (512, 2048, 6), (60, 66)), ("big", (1024, 4096, 6), (209, 217))],
)
def test_presets_have_the_papers_number_of_parameters(preset, sizes, millions):
    model = Transformer.from_preset(preset, 37000, 37000)
    count = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    assert count == parameters(37000, *sizes)
    assert millions[0] < count / 1e6 < millions[1]


def test_preset_takes_options_and_refuses_unknown_names():
    model = Transformer.from_preset(
        "base", 7, 9, d_model=8, d_ff=4, num_encoder_layers=1, num_decoder_layers=1, tie="none"
    )
    assert (model.d_model, model.num_heads, model.dropout) == (8, 8, 0.1)
    with pytest.raises(ValueError, match="base, big. Received: preset='huge'"):
        Transformer.from_preset("huge", 7, 7)


def test_tied_tables_learn_from_every_use(build, batch):
    """Through one table come the gradients of the three that it replaces."""
    (source, target), labels = batch
    tied, untied = build(tie="all"), build(tie="none")
    table = tied.target_embedding.embedding
    untied.output_projection.kernel.assign(table)
    untied.source_embedding.embedding.assign(table)
    untied.target_embedding.embedding.assign(table)
    for stack in ("encoder", "decoder"):
        for one, other in zip(
            getattr(untied, stack).weights, getattr(tied, stack).weights, strict=True
        ):
            one.assign(other)

    def gradients(model, tables):
        with tf.GradientTape() as tape:
            loss, _ = MaskedCrossEntropy().sums(labels, model((source, target)))
        return map(tf.convert_to_tensor, tape.gradient(loss, [table.value for table in tables]))

    separate = gradients(
        untied,
        [
            untied.output_projection.kernel,
            untied.source_embedding.embedding,
            untied.target_embedding.embedding,
        ],
    )
    (shared,) = gradients(tied, [table])
    np.testing.assert_allclose(shared, sum(separate), atol=1e-4)


def test_one_table_needs_one_vocabulary(build):
    with pytest.raises(ValueError, match="source_vocab_size=12, target_vocab_size=11"):
        build(source_vocab_size=12, tie="all")
    with pytest.raises(ValueError, match="Received: tie='both'"):
        build(tie="both")


@pytest.mark.parametrize("tie", ["all", "target"])
def test_tables_of_another_width_cannot_be_tied(tie, build):
    assert build(tie=tie, embedding_dim=8).embedding_dim == 8
    with pytest.raises(ValueError, match=f"embedding_dim=5, d_model=8, tie='{tie}'"):
        build(tie=tie, embedding_dim=5)


def test_depths_are_separate(build):
    model = build(num_encoder_layers=3, num_decoder_layers=1)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)


@pytest.mark.parametrize(
    "option", ["activation", "attention", "norm", "positions", "scale_embedding"]
)
def test_each_option_changes_the_function(option, build, batch):
    inputs, _ = batch
    value = dict(
        activation="swish",
        attention="additive",
        norm="pre",
        positions="sinusoidal_halves",
        scale_embedding=False,
    )[option]
    assert np.abs(build(**{option: value})(inputs) - build()(inputs)).max() > 1e-3


def test_layers_get_the_dropouts_they_are_named_for(build):
    model = build(dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert layer.self_attention.weights_dropout.rate == 0.2
        assert layer.feed_forward.inner_dropout.rate == 0.3
        assert layer.feed_forward_residual.output_dropout.rate == 0.1
    assert model.target_embedding.sum_dropout.rate == 0.1
