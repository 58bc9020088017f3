"""A language model of pairs in the graph that translates: source and target are one sequence."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.graph import TranslationGraph
from kformer.ids import END_ID, START_ID
from kformer.search import Beam
from kformer.text import Tokenizers, WordTokenizer
from kformer.translator import TextTooLongError, Translator
from tests.conftest import random_language_model

WORDS = "one two three four five six seven eight nine ten".split()


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer.learn([" ".join(WORDS)])


def graph_of(tokenizer, search=None, **options):
    model = random_language_model(tokenizer.vocab_size, **options)
    return TranslationGraph(model, Tokenizers(tokenizer, tokenizer), search)


def test_learned_positions_hold_whatever_is_translated_and_scored(tokenizer):
    graph = graph_of(tokenizer, Beam(size=3), positions="learned", max_length=14)
    translator = Translator(graph)
    # Of a short source the translation may be as long as what the source leaves.
    texts = ["one", "one two three four five six", " ".join(WORDS), ""]
    (short, full, parts, blank) = translator.translate_nbest(texts)
    assert (short.parts, full.parts, blank.text) == (1, 1, "") and parts.parts > 1
    for found, before in ((short, 2), (full, 7)):
        assert len(found.hypotheses[0].tokens) <= 14 - before
    # Of a given pair either side may be the longer one.
    for source, target in ((6, 6), (1, 11), (11, 1)):
        pair = [" ".join(WORDS[:1] * source)], [" ".join(WORDS[1:2] * target)]
        (score,) = translator.score(*pair)
        assert len(score.tokens) == target + 1
        assert translator.align(*pair)[0].weights.shape == (target + 1, source + 1)
    long = " ".join(WORDS[:1] * 12)
    with pytest.raises(TextTooLongError, match="13 tokens on both sides .* model reads 12"):
        translator.score(["one"], [long])
    with pytest.raises(TextTooLongError, match="pair 2: 14 tokens on a side, .* reads 13"):
        translator.align(["one", f"{long} one one"], ["one", "one"])


def test_a_score_is_that_of_the_whole_sequence_read_at_once(tokenizer):
    graph = graph_of(tokenizer)
    (found,) = Translator(graph).translate_nbest(["one two"], with_alignments=True)
    (score,) = Translator(graph).score(["one two"], [found.text])
    ids = tokenizer.tokenize(["one two", found.text]).to_list()
    target = [START_ID, *ids[1]]
    whole = np.array([[*ids[0], END_ID, *target]])
    logits = graph.model((np.zeros([1, 0], int), whole))[0, -len(target) :]
    labels = [*ids[1], END_ID]
    expected = tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=1)
    np.testing.assert_allclose(score.token_log_probabilities, expected, atol=1e-4)
    assert found.hypotheses[0].alignment.source_tokens == ["one", "two", "</s>"]


def test_a_search_compiled_by_xla_finds_the_same(tokenizer):
    graph = graph_of(tokenizer)
    texts = tf.constant(["one two three", "", "ten"])
    plain, compiled = graph.translate(texts), graph.translate_xla(texts)
    np.testing.assert_array_equal(compiled["translation"], plain["translation"])
    np.testing.assert_allclose(compiled["score"], plain["score"], rtol=1e-4)
