import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.ids import END_ID
from kformer.losses import MaskedCrossEntropy
from kformer.models import Recurrent
from kformer.search import Beam
from tests.kformer.search.references import all_sequences

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
IDS = tf.TensorSpec([None, None], tf.int64)
OPTION_SETS = {
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


@pytest.fixture
def build():
    """A tiny model, two layers deep, with a random value for every weight."""

    def build(**options):
        sizes = dict(source_vocab_size=11, target_vocab_size=11, d_model=8, dropout=0.0)
        model = Recurrent(**{**sizes, **options})
        random = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(0.4 * random.normal(size=variable.shape))
        return model

    return build


@pytest.fixture(params=OPTION_SETS)
def options(request):
    return OPTION_SETS[request.param]


def test_a_sentence_alone_equals_the_sentence_in_a_padded_batch(options, build, batch, padded):
    model = build(**options)
    run = tf.function(lambda source, target: model((source, target)), input_signature=[IDS, IDS])
    (source, target), _ = batch
    together = run(padded(source, 3), padded(target, 4))
    for row in range(len(source)):
        width, length = np.count_nonzero(source[row]), np.count_nonzero(target[row])
        alone = run(source[row : row + 1, :width], target[row : row + 1, :length])
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
        assert differs[changed:].min() > 1e-5, "the token itself and all after it must see it"


def test_every_source_token_reaches_every_logit(options, build, batch):
    model = build(**options)
    (source, target), _ = batch
    plain = model((source, target)).numpy()
    for column in range(5):
        other = source.copy()
        other[0, column] = 10
        assert np.abs(model((other, target)) - plain)[0].max(axis=-1).min() > 1e-6


def test_steps_equal_the_full_pass_at_every_position(options, build, batch):
    model = build(**options)
    (source, _), _ = batch
    target = np.array([[2, 4, 5, 6], [2, 9, 9, 10], [2, 3, 1, 7]], "int32")
    expected, attention = model.call_with_attention(source, target)
    state = model.init_state(model.encode(source), width=1, length=2)
    step = tf.function(model.step)
    for time in range(4):
        if time == 2:
            state = model.extend(state, 3)
        logits, state = step(tf.constant(target[:, time]), state)
        assert logits.dtype == tf.float32 and state.time == time + 1
        np.testing.assert_allclose(logits, expected[:, time], atol=1e-5)
        if attention:
            np.testing.assert_allclose(state.attention, attention[0][:, 0, time], atol=1e-5)
        else:
            assert state.attention.shape == (3, 0)


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
        state = state._replace(
            hypotheses=tf.nest.map_structure(
                lambda tensor: tf.gather(tensor, rows),  # noqa: B023
                state.hypotheses,
            )
        )


def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_sequences(build):
    vocab, limit = END_ID + 3, 4
    model = build(attention="additive", source_vocab_size=vocab, target_vocab_size=vocab)
    table = model.target_embedding.embedding
    table.assign(3 * table)
    source = np.array([[4, 5, 4], [5, 0, 0]])
    result = Beam(size=16, n_best=3)(model, model.encode(source), [limit] * 2)
    sequences = list(all_sequences(vocab, limit))
    for row in range(2):
        sums = []
        for tokens in sequences:
            target = np.array([[2, *tokens[:-1]]])
            logits = tf.nn.log_softmax(model((source[row : row + 1], target)))[0].numpy()
            sums.append(sum(logits[range(len(tokens)), tokens]))
        best = np.argsort(sums)[::-1][:3]
        found = [tokens[tokens != 0].tolist() for tokens in result.tokens[row].numpy()]
        assert found == [list(sequences[index]) for index in best]
        np.testing.assert_allclose(result.score[row], np.array(sums)[best], atol=1e-4)


def test_attention_is_over_the_real_source_tokens(options, build, batch):
    model = build(**options)
    (source, target), _ = batch
    logits, layers = model.call_with_attention(source, target)
    np.testing.assert_allclose(logits, model((source, target)), atol=1e-6)
    if options.get("attention") == "none":
        assert layers == [] and model.attention_shape == (0, 0)
        return
    assert model.attention_shape == (1, 1)
    (weights,) = layers
    assert weights.shape == (3, 1, 4, 5)
    np.testing.assert_allclose(tf.reduce_sum(weights, axis=3), 1, atol=1e-5)
    real = np.broadcast_to((source != 0)[:, np.newaxis, np.newaxis], weights.shape)
    np.testing.assert_array_equal(weights.numpy()[~real], 0)
    assert weights.numpy()[real].min() > 0


@pytest.mark.parametrize("dtype", POLICIES)
@pytest.mark.parametrize("attention", ["additive", "none"])
def test_source_of_padding_only_is_finite_with_its_gradients(dtype, attention, build, batch):
    model = build(dtype=dtype, attention=attention, bidirectional=True)
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
    assert all(np.abs(gradient).max() > 0 for gradient in expected)


def test_a_batch_in_parts_gives_the_update_of_the_whole(build, batch):
    updated = []
    for parts in (1, 2):
        model = build(attention="additive", bidirectional=True, num_decoder_layers=1)
        before = model.get_weights()
        model.compile(keras.optimizers.SGD(10.0), MaskedCrossEntropy(0.1))
        model.accumulate = parts
        model.fit(*batch, batch_size=3, verbose=0)
        updated.append(model.get_weights())
    for one, other, old in zip(*updated, before, strict=True):
        moved = np.abs(one - old).max()
        assert moved > 0
        np.testing.assert_allclose(one, other, atol=1e-6 + 1e-3 * moved)


def test_half_precision_trains_on_dropout(batch):
    model = Recurrent(
        11, 11, 16, num_encoder_layers=1, bidirectional=True, input_feeding=True,
        dtype="mixed_float16",
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(0.01), MaskedCrossEntropy())
    data = tf.data.Dataset.from_tensors(batch).repeat()
    history = model.fit(data, epochs=2, steps_per_epoch=20, verbose=0).history["loss"]
    assert np.isfinite(history).all() and history[1] < 0.7 * history[0]
    assert {weight.dtype for weight in model.weights} == {"float32"}


@pytest.mark.parametrize("dtype", POLICIES)
def test_logits_are_float32_and_near_in_every_policy(dtype, options, build, batch):
    inputs, _ = batch
    model, plain = build(dtype=dtype, **options), build(**options)
    logits = model(inputs)
    assert logits.dtype == tf.float32
    difference = np.abs(logits - plain(inputs)).mean()
    assert difference < 0.05 * np.std(plain(inputs))
    assert (difference == 0) == (dtype == "float32")


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(tie="both"), "Received: tie='both'"),
        (dict(source_vocab_size=12), "source_vocab_size=12, target_vocab_size=11"),
        (dict(embedding_dim=6), "Received: tie='all', embedding_dim=6, d_model=8"),
    ],
)
def test_tables_that_cannot_be_one_are_refused(options, message, build):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize(
    "changed",
    [
        dict(cell="gru"), dict(attention="additive"), dict(attention="none"),
        dict(input_feeding=True), dict(bidirectional=True),
    ],
    ids=str,
)  # fmt: skip
def test_each_option_changes_the_function(changed, build, batch):
    inputs, _ = batch
    assert np.abs(build(**changed)(inputs) - build()(inputs)).max() > 1e-3


def test_config_carries_every_argument(build, options):
    model = build(**options, dtype="mixed_bfloat16", name="mine")
    config = keras.saving.serialize_keras_object(model)
    assert config["registered_name"] == "kformer>Recurrent"
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == model.get_config()
    assert options.items() <= again.get_config().items()
    assert again.dtype_policy.name == "mixed_bfloat16" and again.name == "mine"
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
