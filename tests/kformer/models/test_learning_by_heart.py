import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.ids import END_ID, START_ID
from kformer.losses import MaskedCrossEntropy
from kformer.models import LanguageModel, Recurrent, Transformer
from kformer.search import Beam, Greedy

SMALL = dict(num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
MODELS = {
    "transformer": lambda vocab: Transformer(vocab, vocab, 64, 4, 128, norm="pre", **SMALL),
    "language model": lambda vocab: LanguageModel(
        vocab, 64, 4, 128, num_decoder_layers=1, dropout=0.0
    ),
    "recurrent": lambda vocab: Recurrent(
        vocab, vocab, 64, bidirectional=True, input_feeding=True, **SMALL
    ),
    "without attention": lambda vocab: Recurrent(
        vocab, vocab, 64, cell="gru", attention="none", bidirectional=True, **SMALL
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def learned(request):
    """A model that has seen twenty random pairs often enough, and the pairs."""
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
    model = MODELS[request.param](vocab)
    model.compile(
        keras.optimizers.Adam(5e-3 if isinstance(model, Recurrent) else 2e-3),
        MaskedCrossEntropy(label_smoothing=0.1),
    )
    data = tf.data.Dataset.from_tensors(((source, inputs), labels)).repeat(150)
    model.fit(data, verbose=0)
    return model, source, inputs, labels


@pytest.mark.parametrize(
    "search", [Greedy(), pytest.param(Beam(size=4), marks=pytest.mark.slow)], ids=str
)
def test_sentences_learned_by_heart_are_recited(search, learned):
    """Loss, update, encoder, decoder, cache and search together."""
    model, source, inputs, labels = learned

    @tf.function
    def translate(source):
        return search(model, model.encode(source), tf.fill([tf.shape(source)[0]], labels.shape[1]))

    result = translate(source)
    tokens = result.tokens.numpy()[:, 0]
    np.testing.assert_array_equal(tokens, labels[:, : tokens.shape[1]])
    assert not labels[:, tokens.shape[1] :].any() and result.ended.numpy()[:, 0].all()
    logits = tf.nn.log_softmax(model((source, inputs)))
    forced = tf.gather(logits, labels, batch_dims=2) * (labels != 0)
    np.testing.assert_allclose(
        result.log_probability[:, 0], tf.reduce_sum(forced, axis=1), atol=1e-4
    )
