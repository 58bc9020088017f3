import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy
from kformer.models import Transformer

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
IDS = tf.TensorSpec([None, None], tf.int64)


def real_length(ids):
    return int(np.count_nonzero(ids))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sentence_alone_equals_the_sentence_in_a_padded_batch(
    compiled, options, build, batch, padded
):
    model = build(**options)
    run = lambda source, target: model((source, target))  # noqa: E731
    if compiled:
        run = tf.function(run, input_signature=[IDS, IDS])
    (source, target), _ = batch
    together = run(padded(source, 3), padded(target, 4))
    for row in range(len(source)):
        source_length, length = real_length(source[row]), real_length(target[row])
        alone = run(source[row : row + 1, :source_length], target[row : row + 1, :length])
        np.testing.assert_allclose(together[row, :length], alone[0], atol=1e-5)


def test_logits_read_no_target_token_after_their_own(options, build, batch):
    model = build(**options)
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6, 7]] * 3)
    plain = model((source, target)).numpy()
    for changed in range(5):
        other = target.copy()
        other[:, changed] = 10
        differs = np.abs(model((source, other)) - plain).max(axis=(0, 2))
        np.testing.assert_array_equal(differs[:changed], 0)
        assert differs[changed:].min() > 1e-4, "the token itself and all after it must see it"


def test_every_source_token_reaches_every_logit(build, batch):
    model = build()
    (source, target), _ = batch
    plain = model((source, target)).numpy()
    for column in range(5):
        other = source.copy()
        other[0, column] = 10
        assert np.abs(model((other, target)) - plain)[0].max(axis=-1).min() > 1e-5


def test_source_order_matters_with_positions_only(build):
    source, swapped, target = [[4, 5, 6]], [[6, 5, 4]], np.array([[2, 4]])
    for positions, matters in (
        ("sinusoidal", True), ("sinusoidal_halves", True), ("rotary", True), ("none", False)
    ):  # fmt: skip
        model = build(positions=positions)
        difference = model((np.array(source), target)) - model((np.array(swapped), target))
        assert (np.abs(difference).max() > 1e-4) == matters, positions


def test_steps_equal_the_full_pass_at_every_position(options, build, batch):
    model = build(**options)
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6], [2, 9, 9, 10], [2, 3, 1, 7]], "int32")
    expected = model((source, target))
    _, attention = model.call_with_attention(source, target)
    attention = tf.reduce_mean(attention[-1], axis=1)
    state = model.init_state(model.encode(source), width=1, length=2)
    step = tf.function(model.step)
    for time in range(4):
        if time == 2:
            state = model.extend(state, 3)
        logits, state = step(tf.constant(target[:, time]), state)
        assert logits.dtype == tf.float32
        np.testing.assert_allclose(logits, expected[:, time], atol=1e-5)
        np.testing.assert_allclose(state.attention, attention[:, time], atol=1e-5)


def test_hypotheses_reordered_at_every_step_equal_the_full_pass_of_what_they_descend_from(
    options, build, batch
):
    model = build(**options)
    (source, _), _ = batch
    random = np.random.default_rng(4)
    width = 3
    state = model.init_state(model.encode(source), width, 6)
    histories = np.zeros([len(source) * width, 0], int)
    for _ in range(6):
        tokens = random.integers(3, 11, len(histories))
        histories = np.column_stack([histories, tokens])
        logits, state = model.step(tf.constant(tokens, tf.int32), state)
        expected = model((np.repeat(source, width, axis=0), histories))[:, -1]
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        parents = random.integers(width, size=[len(source), width])
        rows = (parents + np.arange(len(source))[:, np.newaxis] * width).ravel()
        histories = histories[rows]
        state = state._replace(hypotheses=tf.gather(state.hypotheses, rows))


def test_a_step_reads_nothing_that_the_cache_holds_after_it(build, batch):
    model = build()
    (source, _), _ = batch
    state = model.init_state(model.encode(source), 1, 3)
    stale = tf.nest.map_structure(lambda cache: cache + 9, state.sentences.caches)
    dirty = state._replace(sentences=state.sentences._replace(caches=stale))
    tokens = tf.constant([2, 4, 5])
    np.testing.assert_array_equal(model.step(tokens, dirty)[0], model.step(tokens, state)[0])


def test_attention_is_over_the_real_source_tokens(build, batch):
    model = build()
    (source, target), _ = batch
    logits, layers = model.call_with_attention(source, target)
    np.testing.assert_allclose(logits, model((source, target)), atol=1e-6)
    assert (len(layers), layers[0].shape[1]) == model.attention_shape
    for weights in map(np.array, layers):
        assert weights.shape == (3, 2, 4, 5)
        np.testing.assert_allclose(weights.sum(axis=3), 1, atol=1e-5)
        real = np.broadcast_to((source != 0)[:, np.newaxis, np.newaxis], weights.shape)
        np.testing.assert_array_equal(weights[~real], 0)
        assert weights[real].min() > 0
    assert np.abs(layers[0] - layers[1]).max() > 1e-3


def test_rotary_positions_turn_self_attention_only(build):
    model = build(positions="rotary")
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert layer.self_attention.rotary
    assert not any(layer.cross_attention.rotary for layer in model.decoder.layers)
    ids = np.array([[4, 5, 4]])
    embedded = model.source_embedding(ids)
    np.testing.assert_array_equal(embedded[0, 0], embedded[0, 2])


@pytest.mark.parametrize("dtype", POLICIES)
def test_source_of_padding_only_is_finite_with_its_gradients(dtype, build, batch):
    model = build(dtype=dtype)
    (source, target), labels = batch
    source = np.concatenate([source[:2], np.zeros([1, 5], int)])
    with tf.GradientTape() as tape:
        logits = model((source, target), training=True)
        loss, _ = MaskedCrossEntropy(0.1).sums(labels, logits)
    assert logits.dtype == tf.float32 and np.isfinite(logits).all()
    for gradient in tape.gradient(loss, model.trainable_weights):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_twenty_columns_of_padding_leave_loss_and_gradients_alone(options, build, batch, padded):
    model = build(**options)
    (source, target), labels = batch

    def loss_and_gradients(source, target, labels):
        with tf.GradientTape() as tape:
            logits = model((source, target), training=True)
            loss, tokens = MaskedCrossEntropy(0.1).sums(labels, logits)
        gradients = tape.gradient(loss, model.trainable_weights)
        assert tokens.numpy() == 8
        return [loss, *map(tf.convert_to_tensor, gradients)]

    expected = loss_and_gradients(source, target, labels)
    actual = loss_and_gradients(padded(source), padded(target), padded(labels))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-4)


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


@pytest.mark.parametrize(
    ("tie", "tables"),
    [
        ("all", {"target_embedding"}),
        ("target", {"target_embedding", "source_embedding"}),
        ("none", {"target_embedding", "source_embedding", "output_projection"}),
    ],
)
def test_tying_shares_the_tables_it_names(tie, tables, build):
    model = build(tie=tie)
    wide = [weight.path.split("/")[-2] for weight in model.weights if weight.shape == (11, 8)]
    assert sorted(wide) == sorted(tables)


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


def test_output_bias_is_added_to_every_logit(build, batch):
    inputs, _ = batch
    model = build(output_bias=True)
    plain = model(inputs).numpy()
    bias = model.output_projection.bias
    bias.assign(bias + np.arange(11.0))
    np.testing.assert_allclose(
        model(inputs) - plain, np.broadcast_to(np.arange(11.0), (3, 4, 11)), atol=1e-5
    )
    assert not hasattr(build().output_projection, "bias")


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


@pytest.mark.parametrize("dtype", POLICIES)
def test_logits_and_weights_are_float32_and_near_in_every_policy(dtype, build, batch):
    inputs, _ = batch
    model, plain = build(dtype=dtype), build()
    logits = model(inputs)
    assert logits.dtype == tf.float32
    assert {weight.dtype for weight in model.weights} == {"float32"}
    difference = np.abs(logits - plain(inputs)).mean()
    assert difference < 0.05 * np.std(plain(inputs))
    assert (difference == 0) == (dtype == "float32")


def test_config_carries_every_argument(build, options):
    model = build(**options, attention_dropout=0.2, dtype="mixed_bfloat16", name="mine")
    config = keras.saving.serialize_keras_object(model)
    assert config["registered_name"] == "kformer>Transformer"
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == model.get_config()
    assert options.items() <= again.get_config().items()
    assert again.dtype_policy.name == "mixed_bfloat16" and again.name == "mine"
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
