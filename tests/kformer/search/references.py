"""A model small enough to search by hand, and reference searches in plain Python."""

import itertools

import numpy as np
import tensorflow as tf

from kformer.ids import END_ID, START_ID
from kformer.search import State

STATES = 97


class HashModel:
    """Logits by a hash of everything before: a random table, one row for each hash.

    Padding, unknown and start are the likeliest tokens of all; no search may choose them.

    Args:
        vocab_size: with the four reserved ids.
        sharpness: spread of the logits.
        end: added to the logit of the end token.
    """

    def __init__(self, vocab_size=9, sharpness=2.0, end=0.0, seed=0):
        self.vocab_size = vocab_size
        random = np.random.default_rng(seed)
        self.table = sharpness * random.normal(size=[STATES, vocab_size]).astype("float32")
        self.table[:, END_ID] += end
        self.table[:, :END_ID] += 3
        self.steps = 0

    # The protocol. A "text" is a number; there are as many source positions as it has bits.

    def encode(self, texts):
        return tf.convert_to_tensor(texts, tf.int32)

    def init_state(self, texts, width, length):
        return State(
            tf.constant(0),
            sentences={"text": texts, "room": tf.zeros([tf.size(texts), length])},
            hypotheses={"hash": tf.repeat(texts, width) % STATES},
            attention=tf.zeros([tf.size(texts) * width, 5]),
        )

    def extend(self, state, steps):
        room = tf.pad(state.sentences["room"], [[0, 0], [0, steps]])
        return state._replace(sentences={**state.sentences, "room": room})

    def step(self, tokens, state):
        self.steps += 1
        room = tf.shape(state.sentences["room"])[1]
        check = tf.debugging.assert_less(state.time, room, "a step without room for it")
        with tf.control_dependencies([] if check is None else [check]):
            hashes = (state.hypotheses["hash"] * 31 + tokens * 7 + 1) % STATES
        attention = tf.gather(tf.constant(self.attention_table()), hashes)
        return tf.gather(tf.constant(self.table), hashes), State(
            state.time + 1, state.sentences, {"hash": hashes}, attention
        )

    def attention_table(self):
        """What each hash attends to; the last source position is padding."""
        weights = np.random.default_rng(9).dirichlet([0.3] * 4, STATES).astype("float32")
        return np.pad(weights, [[0, 0], [0, 1]])

    # The same in plain Python.

    def walk(self, text, tokens):
        """Log-probabilities of tokens, one after the other, and the attention of each step."""
        value, last, log_probabilities, attention = text % STATES, START_ID, [], []
        for token in tokens:
            value = (value * 31 + last * 7 + 1) % STATES
            logits = self.table[value].astype("float64")
            log_probabilities.append(logits[token] - np.logaddexp.reduce(logits))
            attention.append(self.attention_table()[value])
            last = token
        return log_probabilities, attention

    def next_log_probabilities(self, text, tokens):
        """Of every token after these, float64 (vocab_size,)."""
        value, last = text % STATES, START_ID
        for token in [*tokens, None]:
            value = (value * 31 + last * 7 + 1) % STATES
            last = token
        logits = self.table[value].astype("float64")
        return logits - np.logaddexp.reduce(logits)


def normalised(model, text, tokens, alpha=0.0, form="gnmt", beta=0.0):
    """The score that a finished hypothesis competes by."""
    log_probabilities, attention = model.walk(text, tokens)
    n = len(tokens)
    score = sum(log_probabilities) / (((5 + n) / 6) if form == "gnmt" else n) ** alpha
    covered = np.minimum(np.sum(attention, axis=0)[:4], 1)
    return score + (beta * np.log(covered).sum() if beta else 0.0)


def all_sequences(vocab_size, limit):
    """Whatever ends within the limit or is cut by it."""
    words = range(END_ID + 1, vocab_size)
    for n in range(limit):
        for start in itertools.product(words, repeat=n):
            yield [*start, END_ID]
    yield from map(list, itertools.product(words, repeat=limit))


def reference_beam(model, text, limit, size, **penalties):
    """All finished hypotheses of a beam search that goes on to the limit, best first."""
    live, finished = [([], 0.0)], []
    for time in range(limit):
        candidates = []
        for tokens, total in live:
            scores = model.next_log_probabilities(text, tokens)
            candidates += [
                ([*tokens, token], total + scores[token])
                for token in range(END_ID, model.vocab_size)
            ]
        candidates.sort(key=lambda candidate: -candidate[1])
        for tokens, _ in candidates[:size]:
            if tokens[-1] == END_ID or time + 1 == limit:
                finished.append((normalised(model, text, tokens, **penalties), tokens))
        live = [candidate for candidate in candidates if candidate[0][-1] != END_ID][:size]
    return sorted(finished, key=lambda pair: -pair[0])
