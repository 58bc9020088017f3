import numpy as np
import pytest
import tensorflow as tf

from kformer.layers import AdditiveAttention, DotProductAttention, lengths_mask, padding_mask

LAYERS = {
    "dot product": lambda **options: DotProductAttention(**options),
    "without projection": lambda **options: DotProductAttention(project_query=False, **options),
    "additive": lambda **options: AdditiveAttention(units=7, **options),
}


@pytest.fixture(params=LAYERS)
def make(request):
    return LAYERS[request.param]


@pytest.fixture
def queries(make, random):
    return random(3, 4, 5 if make is LAYERS["without projection"] else 6)


@pytest.fixture
def memory(random):
    return random(3, 8, 5)


LENGTHS = [8, 3, 1]


def by_loops(layer, queries, memory, mask):
    """Contexts and weights, one query after the other."""
    contexts = np.zeros([*queries.shape[:2], memory.shape[2]])
    weights = np.zeros([*queries.shape[:2], memory.shape[1]])
    for row in range(len(queries)):
        for i, query in enumerate(queries[row]):
            seen = np.flatnonzero(np.broadcast_to(mask[row], weights[row].shape)[i])
            scores = []
            for key in memory[row, seen]:
                if isinstance(layer, AdditiveAttention):
                    hidden = np.tanh(query @ layer.query_kernel + key @ layer.key_kernel)
                    scores.append(hidden @ layer.score_vector)
                else:
                    projected = query @ layer.query_kernel if layer.project_query else query
                    scores.append(projected @ key / np.sqrt(len(key)))
            if len(seen):
                exponentials = np.exp(scores)
                weights[row, i, seen] = exponentials / exponentials.sum()
            contexts[row, i] = weights[row, i] @ memory[row]
    return contexts, weights


def test_is_what_loops_over_queries_give(make, queries, memory, randomize):
    layer = make()
    layer.build(queries.shape, memory.shape)
    randomize(layer)
    random_mask = np.random.default_rng(5).random([3, 4, 8]) < 0.5
    for mask in (lengths_mask(LENGTHS, 8).numpy(), random_mask):
        context, weights = layer(queries, memory, mask, return_weights=True)
        expected_context, expected_weights = by_loops(layer, queries, memory, mask)
        np.testing.assert_allclose(context, expected_context, atol=1e-5)
        np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
        hidden = ~np.broadcast_to(mask, weights.shape)
        np.testing.assert_array_equal(weights.numpy()[hidden], 0)
    # Without a mask all is seen.
    everything = np.ones([3, 1, 8], bool)
    np.testing.assert_array_equal(layer(queries, memory), layer(queries, memory, everything))


def test_a_memory_projected_once_gives_the_same(make, queries, memory):
    layer, mask = make(), lengths_mask(LENGTHS, 8)
    expected = layer(queries, memory, mask, return_weights=True)
    projected = layer.project_memory(memory)
    for query in range(4):
        context, weights = layer.attend(queries[:, query : query + 1], projected, mask)
        np.testing.assert_allclose(context[:, 0], expected[0][:, query], atol=1e-6)
        np.testing.assert_allclose(weights[:, 0], expected[1][:, query], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_query_that_may_attend_to_nothing_gets_zeros_and_passes_no_gradient(
    dtype, make, queries, memory
):
    layer = make(dtype=dtype)
    queries, memory = tf.constant(queries), tf.constant(memory)
    with tf.GradientTape() as tape:
        tape.watch([queries, memory])
        context, weights = layer(queries, memory, lengths_mask([8, 0, 2], 8), return_weights=True)
        total = tf.reduce_sum(tf.cast(context, tf.float32) ** 2)
    np.testing.assert_array_equal(context[1], 0)
    np.testing.assert_array_equal(weights[1], 0)
    gradients = tape.gradient(total, [queries, memory, *layer.trainable_weights])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0][1], 0)
    np.testing.assert_array_equal(gradients[1][1], 0)
    # Padding is no part of anything.
    np.testing.assert_array_equal(gradients[1][2, 2:], 0)


def test_dropout_drops_weights_in_training_only(make, queries, memory):
    layer = make(dropout=0.5)
    plain = layer(queries, memory)
    np.testing.assert_array_equal(layer(queries, memory), plain)
    dropped, weights = layer(queries, memory, return_weights=True, training=True)
    assert np.abs(dropped - plain).max() > 1e-2
    np.testing.assert_allclose(tf.reduce_sum(weights, axis=2), 1, atol=1e-5)


def test_without_projection_the_widths_must_be_one(random):
    with pytest.raises(ValueError, match=r"Received: query.shape=\(2, 3, 4\), memory"):
        DotProductAttention(project_query=False)(random(2, 3, 4), random(2, 3, 5))
    with pytest.raises(ValueError, match="Received: units=0"):
        AdditiveAttention(0)


def test_lengths_are_of_a_sequence_or_of_each_of_its_queries():
    np.testing.assert_array_equal(
        lengths_mask([2, 0], 3), [[[True, True, False]], [[False, False, False]]]
    )
    np.testing.assert_array_equal(
        lengths_mask(tf.constant([[1, 3]]), 3), [[[True, False, False], [True, True, True]]]
    )


def test_masks_of_attention_with_heads_are_refused(make, queries, memory):
    # Broadcast to it, the result would be of every sentence under the masks of all.
    mask = padding_mask(tf.constant([[5, 6, 0, 0, 0, 0, 0, 0]] * 3))
    with pytest.raises(ValueError, match=r"must broadcast to the scores, \(3, 4, 8\)"):
        make()(queries, memory, attention_mask=mask)
