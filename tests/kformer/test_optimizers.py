import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.losses import MaskedCrossEntropy
from kformer.models import Transformer
from kformer.optimizers import Adam, Muon
from kformer.run_folder import RunFolder
from kformer.schedules import LinearSchedule, NoamSchedule

ROOT = Path(__file__).resolve().parents[2]
# Ours has the paper's defaults, Keras' its own.
ADAM = dict(beta_1=0.9, beta_2=0.98, epsilon=1e-9)


def variables(shapes, seed=0):
    random = np.random.default_rng(seed)
    return [
        keras.Variable(random.normal(size=shape).astype("float32"), name=name)
        for name, shape in shapes.items()
    ]


def values(weights):
    return [keras.ops.convert_to_numpy(weight) for weight in weights]


def train(optimizer, weights, gradients_of_updates):
    optimizer.build(weights)
    for gradients in gradients_of_updates:
        optimizer.apply(gradients, weights)
    return values(weights)


def random_gradients(shapes, updates=5, seed=1):
    random = np.random.default_rng(seed)
    return [
        [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes.values()]
        for _ in range(updates)
    ]


def muon_whose_adam_has(rate, **options):
    return Muon(4 * rate, adam_rate_ratio=0.25, **options)


def assert_close(got, expected, **tolerance):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, **{"rtol": 2e-5, "atol": 1e-6, **tolerance})


@pytest.mark.parametrize("clipnorm", [None, 0.5])
def test_adam_is_keras_adam(clipnorm):
    shapes = {"kernel": (5, 7), "bias": (7,)}
    gradients = random_gradients(shapes)
    got = train(Adam(0.01, global_clipnorm=clipnorm), variables(shapes), gradients)
    reference = keras.optimizers.Adam(0.01, **ADAM, global_clipnorm=clipnorm)
    assert_close(got, train(reference, variables(shapes), gradients))


@pytest.mark.parametrize(
    "build",
    [
        lambda **options: Adam(0.01, **options),
        lambda **options: muon_whose_adam_has(0.01, **options),
    ],
    ids=["adam", "muon"],
)
@pytest.mark.parametrize("clipnorm", [None, 0.5])
def test_a_sparse_gradient_updates_as_the_dense_one_it_stands_for(build, clipnorm):
    """What `tf.gather` gives for an untied embedding, with an id that occurs twice."""
    shapes = {"embedding": (6, 3), "bias": (4,)}
    sparse, dense = [], []
    for update, (_, bias) in enumerate(random_gradients(shapes)):
        rows = tf.constant(np.random.default_rng(update).normal(size=(3, 3)), tf.float32)
        slices = tf.IndexedSlices(rows, tf.constant([4, 1, 4]), tf.constant([6, 3]))
        sparse.append([slices, bias])
        dense.append([tf.convert_to_tensor(slices), bias])
    got = train(build(global_clipnorm=clipnorm), variables(shapes), sparse)
    reference = keras.optimizers.Adam(0.01, **ADAM, global_clipnorm=clipnorm)
    assert_close(got, train(reference, variables(shapes), dense))


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8)])
def test_muon_on_a_matrix_is_keras_muon(shape):
    shapes = {"kernel": shape, "bias": (5,)}
    gradients = random_gradients(shapes)
    got = train(Muon(0.01, adam_rate_ratio=0.3), variables(shapes), gradients)
    reference = keras.optimizers.Muon(
        0.01, adam_beta_1=0.9, adam_beta_2=0.98, epsilon=1e-9, weight_decay=None,
        adam_weight_decay=None, adam_lr_ratio=0.3,
    )  # fmt: skip
    assert_close(got, train(reference, variables(shapes), gradients), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("qkv_kernel", 3),
        ("lstm_kernel", 4),
        ("lstm_recurrent_kernel", 4),
        ("context_lstm_kernel", 4),
        ("gru_recurrent_kernel", 3),
        ("output_kernel", 1),
    ],
)
def test_a_fused_kernel_learns_as_the_matrices_that_it_is_made_of(name, count):
    separate = {f"kernel_{number}": (8, 8) for number in range(count)}
    parts, gradients = variables(separate), random_gradients(separate)
    fused = keras.Variable(np.concatenate(values(parts), axis=1), name=name)
    fused_gradients = [[tf.concat(of_parts, axis=1)] for of_parts in gradients]
    expected = np.concatenate(train(Muon(0.01), parts, gradients), axis=1)
    assert_close(train(Muon(0.01), [fused], fused_gradients), [expected])


def small_model(**options):
    sizes = dict(
        source_vocab_size=11, target_vocab_size=11, d_model=8, num_heads=2, d_ff=12,
        num_encoder_layers=1, num_decoder_layers=1, dropout=0.0,
    )  # fmt: skip
    model = Transformer(**{**sizes, **options})
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(0.4 * random.normal(size=weight.shape) + (weight.name == "gamma"))
    return model


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_muon_leaves_tables_output_biases_and_norms_to_adam(tie):
    results = []
    for optimizer in (muon_whose_adam_has(0.01), Adam(0.01)):
        model = small_model(tie=tie, output_bias=True, positions="learned", max_length=9)
        weights = model.trainable_weights
        shapes = {weight.path: weight.shape for weight in weights}
        results.append(train(optimizer, weights, random_gradients(shapes, updates=2)))
    tables = [model.target_embedding, model.source_embedding, model.output_projection]
    of_tables = {id(weight) for table in tables for weight in table.trainable_weights}
    hidden = [len(weight.shape) == 2 and id(weight) not in of_tables for weight in weights]
    assert sum(hidden) == 3 * 2 + 2 * 2  # three attentions, two feed-forward networks
    for weight, is_hidden, muon, adam in zip(weights, hidden, *results, strict=True):
        assert np.allclose(muon, adam, rtol=1e-5, atol=1e-7) != is_hidden, weight.path


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (24, 24)])
def test_orthogonalising_sets_singular_values_near_one_and_keeps_singular_vectors(
    shape, compute_dtype
):
    random = np.random.default_rng(3)
    matrices = []
    for _ in range(3):
        u, _, v = np.linalg.svd(random.normal(size=shape), full_matrices=False)
        matrices.append(u * np.geomspace(5.0, 0.2, min(shape)) @ v)
    optimizer = Muon(compute_dtype=compute_dtype)
    result = optimizer.orthogonalize(tf.constant(np.stack(matrices), tf.float32))
    assert result.dtype == tf.float32
    for matrix, got in zip(matrices, result.numpy(), strict=True):
        u, before, v = np.linalg.svd(matrix, full_matrices=False)
        singular = np.linalg.svd(got, compute_uv=False)
        assert before.max() / before.min() > 20
        assert 0.6 < singular.min() and singular.max() < 1.3
        cosine = (got * (u @ v)).sum() / np.linalg.norm(got) / np.linalg.norm(u @ v)
        assert cosine > 0.97


def test_orthogonalising_a_zero_matrix_gives_zero():
    np.testing.assert_array_equal(Muon().orthogonalize(tf.zeros([1, 3, 4])), np.zeros([1, 3, 4]))


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(NoamSchedule(8, 3), beta_1=0.8, beta_2=0.95, epsilon=1e-7, global_clipnorm=0.3),
        Muon(
            0.02, momentum=0.9, adam_rate_ratio=0.7, iterations_newton_schulz=4,
            compute_dtype="bfloat16", beta_1=0.8, beta_2=0.95, epsilon=1e-7, global_clipnorm=0.3,
        ),
    ],
    ids=["adam", "muon"],
)  # fmt: skip
def test_an_optimizer_comes_back_from_its_config_the_same(optimizer):
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(restored) is type(optimizer)
    assert restored.get_config() == optimizer.get_config()
    shapes = {"kernel": (4, 6), "bias": (6,)}
    gradients = random_gradients(shapes, updates=2)
    expected = train(optimizer, variables(shapes), gradients)
    assert_close(train(restored, variables(shapes), gradients), expected, rtol=0, atol=0)


OPTIMIZERS = {
    "adam": lambda: Adam(NoamSchedule(8, 3), global_clipnorm=1.0),
    "muon": lambda: Muon(LinearSchedule(0.01, 2, 9)),
}
# (source, target), labels
BATCH = (
    ([[4, 5, 6, 3], [7, 8, 3, 0]], [[2, 9, 4, 5], [2, 10, 0, 0]]),
    [[9, 4, 5, 3], [10, 3, 0, 0]],
)

REOPEN = """
import json, sys
import numpy as np, tensorflow as tf
from kformer.run_folder import RunFolder

folder, batch = RunFolder(sys.argv[1]), json.loads(sys.argv[2])
report = {}
for name in sys.argv[3:]:
    model = folder.load_model(folder.path / f"{name}.keras", compile=True)
    optimizer = model.optimizer
    report[name] = [
        type(optimizer).__name__,
        type(optimizer._learning_rate).__name__,
        int(optimizer.iterations),
        float(optimizer.learning_rate),
    ]
    arrays = {f"slot {v.path}": v.numpy() for v in optimizer.variables}
    (source, target), labels = batch
    model.train_step(((tf.constant(source), tf.constant(target)), tf.constant(labels)))
    arrays |= {f"weight {i}": w.numpy() for i, w in enumerate(model.trainable_weights)}
    np.savez(folder.path / f"{name}.npz", **arrays)
print(json.dumps(report))
"""


def update(model):
    (source, target), labels = BATCH
    model.train_step(((tf.constant(source), tf.constant(target)), tf.constant(labels)))


@pytest.fixture(scope="module")
def reopened(tmp_path_factory):
    """Models trained for three updates and saved, and what a fresh process made of them."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    models = {}
    for name, build in OPTIMIZERS.items():
        models[name] = model = small_model()
        model.compile(build(), MaskedCrossEntropy(0.1), jit_compile=False)
        for _ in range(3):
            update(model)
        folder.save_model(model, folder.path / f"{name}.keras")
    done = subprocess.run(
        [sys.executable, "-c", REOPEN, str(folder.path), json.dumps(BATCH), *models],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout.splitlines()[-1])
    return {
        name: (model, reports[name], dict(np.load(folder.path / f"{name}.npz")))
        for name, model in models.items()
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_fresh_process_goes_on_exactly_where_the_saved_model_was(reopened, name):
    model, report, arrays = reopened[name]
    optimizer = model.optimizer
    assert report[:3] == [
        type(optimizer).__name__,
        type(OPTIMIZERS[name]()._learning_rate).__name__,
        3,
    ]
    # The rate of the fourth update, not of the first.
    rate = float(OPTIMIZERS[name]()._learning_rate(3))
    assert report[3] == pytest.approx(rate, rel=1e-6)
    slots = {f"slot {slot.path}": slot.numpy() for slot in optimizer.variables}
    assert slots.keys() == {key for key in arrays if key.startswith("slot ")}
    assert any(np.any(slot) for key, slot in slots.items() if "momentum" in key)
    for key, slot in slots.items():
        np.testing.assert_array_equal(arrays[key], slot, err_msg=key)
    update(model)
    for index, weight in enumerate(model.trainable_weights):
        np.testing.assert_allclose(
            arrays[f"weight {index}"], weight.numpy(), rtol=1e-6, atol=1e-7, err_msg=weight.path
        )


@pytest.mark.parametrize("kind", [Adam, Muon])
def test_weight_decay_takes_its_share_times_the_rate_of_every_weight(kind):
    """Decoupled: with a gradient of zero nothing else moves a weight."""
    start = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    variable = keras.Variable(start)
    kind(0.1, weight_decay=0.2).apply([tf.zeros((3, 4))], [variable])
    np.testing.assert_allclose(variable, start * (1 - 0.1 * 0.2), rtol=1e-6)


@pytest.mark.parametrize("make", [Adam, Muon])
def test_keras_accumulation_which_runs_schedules_too_fast_is_refused(make):
    with pytest.raises(ValueError, match="Received: gradient_accumulation_steps=2"):
        make(gradient_accumulation_steps=2)


@pytest.mark.parametrize("make", [Adam, Muon])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_variables_of_another_precision_learn_too(make, dtype):
    gradient = np.array([[0.5, -1.0], [2.0, -0.25]])
    variable, reference = (
        keras.Variable(np.ones([2, 2]), dtype=dtype),
        keras.Variable(np.ones([2, 2])),
    )
    for weight in (variable, reference):
        # An epsilon that float16 can hold.
        make(0.1, epsilon=1e-6).apply([tf.constant(gradient, weight.dtype)], [weight])
    assert variable.dtype == dtype
    np.testing.assert_allclose(
        tf.cast(variable, "float32"), reference, rtol=1e-5 if dtype == "float64" else 0.02
    )


@pytest.mark.parametrize("make", [Adam, Muon])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_an_update_whose_gradient_is_no_number_changes_nothing(make, broken):
    shapes = {"kernel": (5, 7), "bias": (7,)}
    optimizer, weights = make(0.1, weight_decay=0.2, global_clipnorm=1.0), variables(shapes)
    good = random_gradients(shapes, 3)
    train(optimizer, weights, good[:2])
    counters = [optimizer.left_out, optimizer.left_out_in_a_row, optimizer.gradient_norm]
    state = [*weights, *(v for v in optimizer.variables if all(v is not c for c in counters))]
    before = values(state)
    bad = [tf.tensor_scatter_nd_update(good[2][0], [[2, 3]], [broken]), good[2][1]]
    for left_out in (1, 2):
        optimizer.apply(bad, weights)
        for value, was in zip(values(state), before, strict=True):
            np.testing.assert_array_equal(value, was)
        assert int(optimizer.left_out) == int(optimizer.left_out_in_a_row) == left_out
        assert int(optimizer.iterations) == 2
    optimizer.apply(good[2], weights)
    assert (int(optimizer.left_out), int(optimizer.left_out_in_a_row)) == (2, 0)
    expected = train(make(0.1, weight_decay=0.2, global_clipnorm=1.0), variables(shapes), good)
    for value, other in zip(values(weights), expected, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("make", [Adam, Muon])
def test_averages_follow_the_weights_and_leave_out_what_is_left_out(make):
    shapes = {"kernel": (3, 2), "bias": (2,)}
    weights = variables(shapes)
    optimizer = make(0.1, average_decay=0.6)
    optimizer.build(weights)
    expected = None
    for number, gradients in enumerate(random_gradients(shapes, updates=40)):
        if number % 5 == 3:
            gradients = [gradient * np.nan for gradient in gradients]
        update = int(optimizer.iterations)
        optimizer.apply(gradients, weights)
        if number % 5 != 3:
            decay = min(0.6, update / (update + 9))
            expected = [
                value if update == 0 else decay * old + (1 - decay) * value
                for value, old in zip(values(weights), expected or values(weights), strict=True)
            ]
    assert_close(values(optimizer.averages), expected)
    assert np.abs(values(optimizer.averages)[0] - values(weights)[0]).max() > 1e-3


def test_the_length_of_the_gradient_is_told_before_it_is_clipped():
    optimizer, weights = Adam(0.1, global_clipnorm=0.5), variables({"a": (2,), "b": (1,)})
    train(optimizer, weights, [[tf.constant([3.0, 0.0]), tf.constant([4.0])]])
    assert float(optimizer.gradient_norm) == pytest.approx(5.0)


def test_a_loss_scale_leaves_updates_as_they_are_and_follows_overflows():
    shapes = {"kernel": (3, 4)}
    plain = train(Adam(0.1), variables(shapes), random_gradients(shapes, 3))
    optimizer, weights = Adam(0.1, loss_scale=1024.0), variables(shapes)
    optimizer.build(weights)
    optimizer.GROWTH_UPDATES = 2
    assert float(optimizer.scale_loss(tf.constant(2.0))) == 2048.0
    scales = []
    for gradients in random_gradients(shapes, 3):
        scaled = [gradient * optimizer.scale.numpy() for gradient in gradients]
        optimizer.apply(scaled, weights)
        scales.append(float(optimizer.scale))
    assert scales == [1024.0, 2048.0, 2048.0]
    assert_close(values(weights), plain)
    optimizer.apply([tf.fill((3, 4), np.inf)], weights)
    assert float(optimizer.scale) == 1024.0 and int(optimizer.iterations) == 3


@pytest.mark.parametrize("option", [{"clipnorm": 1.0}, {"clipvalue": 0.5}])
def test_clipping_each_variable_by_itself_is_refused(option):
    with pytest.raises(ValueError, match="global_clipnorm.*" + next(iter(option))):
        Adam(0.1, **option)
