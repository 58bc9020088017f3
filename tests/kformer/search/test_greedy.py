import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.losses import MaskedCrossEntropy
from kformer.models import Transformer
from kformer.search import greedy_search

VOCAB = 8


@pytest.fixture
def table():
    """Logits of the next token: first word of the row's text x last token x next token.

    Each row follows START -> 4 -> 5 -> ..., and turns to END after as many tokens as its text
    says. PAD and START have the highest logits of all, everywhere.
    """
    logits = np.random.default_rng(0).normal(size=(4, VOCAB, VOCAB)).astype("float32")
    logits[..., [PAD_ID, START_ID]] = 20
    for text, last in np.ndindex(4, VOCAB):
        follower = 4 if last == START_ID else last + 1
        logits[text, last, END_ID if last - 3 >= text + 1 else follower % VOCAB] = 10
    return logits


@pytest.fixture
def step(table):
    """State: (text (B,), number of steps so far (B,)); deeper tokens become less sure."""

    def step(tokens, state):
        text, steps = state["text"], state["steps"]
        logits = tf.gather_nd(table, tf.stack([text, tokens], axis=1))
        logits /= 1 + tf.cast(steps, tf.float32)[:, tf.newaxis]
        return logits, {"text": text, "steps": steps + 1}

    return step


def initial(texts):
    return {"text": tf.constant(texts, tf.int32), "steps": tf.zeros([len(texts)], tf.int32)}


def follow(table, text, limit):
    """The same search of one row in numpy: (tokens, log-probability, ended)."""
    tokens, total = [], 0.0
    while len(tokens) < limit and (not tokens or tokens[-1] != END_ID):
        logits = table[text, tokens[-1] if tokens else START_ID].astype("float64")
        logits = logits / (1 + len(tokens))
        best = max(
            (i for i in range(VOCAB) if i not in (PAD_ID, START_ID)), key=lambda i: logits[i]
        )
        total += logits[best] - np.log(np.exp(logits).sum())
        tokens.append(best)
    return tokens, total, bool(tokens) and tokens[-1] == END_ID


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_follow_their_likeliest_tokens_to_the_end_or_their_limit(compiled, step, table):
    texts, limits = [0, 3, 1, 2, 3, 1, 0], [9, 9, 3, 2, 1, 0, 2]

    def search(state, limits):
        return greedy_search(step, state, limits)

    search = tf.function(search) if compiled else search
    tokens, log_probability, ended = search(initial(texts), tf.constant(limits))
    assert tokens.dtype == tf.int32
    for row, (text, limit) in enumerate(zip(texts, limits, strict=True)):
        expected, total, has_ended = follow(table, text, limit)
        np.testing.assert_array_equal(tokens[row], expected + [PAD_ID] * (5 - len(expected)))
        np.testing.assert_allclose(log_probability[row], total, rtol=1e-5)
        assert ended[row].numpy() == has_ended
    assert set(ended.numpy()) == {False, True}, "the example must have both"
    # Exactly 2 tokens at a limit of 2: the end token fits, and the row has ended.
    assert ended[6].numpy() and tokens.shape == (7, 5)


def test_a_row_in_a_batch_equals_the_row_alone(step):
    texts, limits = [3, 0, 2], [9, 4, 2]
    together = greedy_search(step, initial(texts), tf.constant(limits))
    for row in range(3):
        alone = greedy_search(step, initial(texts[row : row + 1]), tf.constant([limits[row]]))
        width = alone.tokens.shape[1]
        np.testing.assert_array_equal(together.tokens[row, :width], alone.tokens[0])
        np.testing.assert_array_equal(together.tokens[row, width:], PAD_ID)
        np.testing.assert_allclose(together.log_probability[row], alone.log_probability[0])
        assert together.ended[row] == alone.ended[0]


def test_search_stops_stepping_when_every_row_has_ended(step):
    steps = []

    def counting(tokens, state):
        steps.append(tokens)
        return step(tokens, state)

    result = greedy_search(counting, initial([0, 1]), tf.constant([50, 50]))
    assert len(steps) == result.tokens.shape[1] == 3


@pytest.mark.parametrize("texts", [[], [1, 2]])
def test_no_row_or_no_room_gives_no_tokens(step, texts):
    result = greedy_search(step, initial(texts), tf.zeros([len(texts)], tf.int32))
    assert result.tokens.shape == (len(texts), 0)
    np.testing.assert_array_equal(result.log_probability, np.zeros(len(texts)))
    np.testing.assert_array_equal(result.ended, np.zeros(len(texts), bool))


def test_impossible_tokens_do_not_make_padding_a_choice():
    logits = np.full([1, VOCAB], -np.inf, "float32")
    logits[0, [PAD_ID, START_ID, 5]] = [9, 9, -50]
    result = greedy_search(lambda _, state: (tf.constant(logits), state), [], tf.constant([2]))
    np.testing.assert_array_equal(result.tokens, [[5, 5]])
    np.testing.assert_allclose(result.log_probability, [-118 - 2 * np.log(2)], rtol=1e-6)


def test_sentences_learned_by_heart_are_recited():
    """Loss, update, encoder, decoder, cache and search together: twenty random pairs come back."""
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(3)
    vocab, pairs, longest = 24, 20, 9
    source = np.zeros([pairs, longest], "int32")
    labels = np.zeros([pairs, longest], "int32")
    for row in range(pairs):
        source_length, target_length = random.integers(3, longest, size=2)
        source[row, :source_length] = random.integers(4, vocab, source_length)
        labels[row, :target_length] = random.integers(4, vocab, target_length)
        labels[row, target_length] = END_ID
    inputs = np.concatenate([np.full([pairs, 1], START_ID), labels[:, :-1]], axis=1)

    model = Transformer(
        vocab, vocab, 64, 4, 128, num_encoder_layers=2, num_decoder_layers=2, norm="pre", dropout=0
    )
    model.compile(keras.optimizers.Adam(2e-3), MaskedCrossEntropy(label_smoothing=0.1))
    data = tf.data.Dataset.from_tensors(((source, inputs), labels)).repeat(150)
    model.fit(data, verbose=0)

    @tf.function
    def translate(source):
        state = model.init_state(model.encode(source), longest)
        return greedy_search(model.step, state, tf.fill([tf.shape(source)[0]], longest))

    tokens, log_probability, ended = translate(source)
    np.testing.assert_array_equal(tokens, labels[:, : tokens.shape[1]])
    assert not labels[:, tokens.shape[1] :].any() and ended.numpy().all()
    logits = tf.nn.log_softmax(model((source, inputs)))
    forced = tf.gather(logits, labels, batch_dims=2) * (labels != 0)
    np.testing.assert_allclose(log_probability, tf.reduce_sum(forced, axis=1), atol=1e-4)
