"""Our decoder against an engine that others wrote, on the same weights."""

import ctranslate2
import numpy as np
import pytest

from export.ctranslate2 import write_ctranslate2
from export.run import main
from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.ids import END_ID
from kformer.search import Beam, Greedy
from kformer.text import SentencePieceTokenizer, Tokenizers
from kformer.translator import Translator
from tests.export.conftest import LINES, tokenizer

DEEP = dict(num_encoder_layers=2, num_decoder_layers=2)
OPTIONS = {
    "pre-norm": DEEP,
    "paper": dict(norm="post", tie="all", attention_bias=False, **DEEP),
    "marian": dict(norm="post", tie="all", activation="swish", positions="sinusoidal_halves"),
    "learned": dict(
        positions="learned", max_length=90, activation="gelu", tie="target", num_decoder_layers=2
    ),
    "no positions": dict(positions="none", scale_embedding=False, num_encoder_layers=2),
}


@pytest.fixture
def model(random_transformer, kind):
    """Random weights, no larger than trained ones, so that sums are as precise.

    The other engine scores as if the reserved tokens did not exist; here they are improbable.
    """
    options = {"output_bias": True, **OPTIONS[kind]}
    model = random_transformer(tokenizer("words").vocab_size, **options)
    random = np.random.default_rng(7)
    for weight in model.trainable_weights:
        scale = 0.2 if len(weight.shape) == 1 else 0.6
        noise = random.normal(size=weight.shape)
        weight.assign(scale * noise + (weight.name == "gamma"))
    bias = model.output_projection.bias
    bias.assign(np.where(np.arange(bias.shape[0]) < END_ID, -1e4, bias.numpy()))
    return model


def other_engine(folder, sources, beam_size):
    """Pieces and sums of log-probabilities of each sentence."""
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=2)
    results = engine.translate_batch(
        sources, beam_size=beam_size, length_penalty=0.0, max_decoding_length=40,
        return_scores=True, min_decoding_length=0, suppress_sequences=[["<pad>"], ["<s>"]],
        max_input_length=0,
    )  # fmt: skip
    return [(result.hypotheses[0], result.scores[0]) for result in results]


# The search asks the model for the same numbers, whatever its layers are.
@pytest.mark.parametrize(
    ("kind", "beam_size"), [*((kind, 1) for kind in OPTIONS), ("pre-norm", 4), ("paper", 4)]
)
def test_both_engines_find_the_same_tokens_with_the_same_score(model, beam_size, tmp_path):
    words = tokenizer("words")
    tokenizers = Tokenizers(words, words)
    write_ctranslate2(model, tokenizers, tmp_path / "model")
    lines = LINES[:40]
    vocabulary = words.pieces()
    sources = [[vocabulary[id] for id in ids] for ids in words.tokenize(lines).to_list()]
    expected = other_engine(tmp_path / "model", sources, beam_size)
    search = Greedy() if beam_size == 1 else Beam(size=beam_size)
    graph = TranslationGraph(model, tokenizers, search, max_length=40, length_margin=40)
    same = 0
    for translation, (tokens, score) in zip(
        Translator(graph).translate_nbest(lines), expected, strict=True
    ):
        (found,) = translation.hypotheses
        if [token for token in found.tokens if token != "</s>"] == tokens:
            same += 1
            assert found.log_probability == pytest.approx(score, abs=1e-3)
    # A beam of theirs also ends once as many hypotheses as it is wide are finished; ours goes on
    # while one of the unfinished could win.
    assert same >= (40 if beam_size == 1 else 34)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation", "tanh"), ("positions", "rotary"), ("attention", "additive"),
        ("embedding_dim", 50),
    ],
)  # fmt: skip
def test_what_the_engine_lacks_is_named(key, value, random_transformer, tmp_path):
    words = tokenizer("words")
    model = random_transformer(words.vocab_size, **{key: value})
    with pytest.raises(InputError, match=f"Received: model.{key} {value}"):
        write_ctranslate2(model, Tokenizers(words, words), tmp_path / "model")


def test_another_kind_of_model_is_named(random_recurrent, tmp_path):
    words = tokenizer("words")
    with pytest.raises(InputError, match="only a Transformer can be.* Received: Recurrent"):
        write_ctranslate2(
            random_recurrent(words.vocab_size), Tokenizers(words, words), tmp_path / "model"
        )


def test_positions_that_the_engine_lacks_are_named(random_transformer, tmp_path):
    words = tokenizer("words")
    model = random_transformer(words.vocab_size)
    model.positions = "rotary"
    with pytest.raises(InputError, match="Received: model.positions rotary"):
        write_ctranslate2(model, Tokenizers(words, words), tmp_path / "model")


@pytest.mark.parametrize("quantization", ["int8", "float16"])
def test_the_command_writes_a_model_that_loads(runs, tmp_path, quantization):
    out = tmp_path / "ct2"
    words = [str(runs["subwords"].path), "--to=ctranslate2", "--out", str(out)]
    assert main([*words, f"--quantization={quantization}"]) == 0
    pieces = SentencePieceTokenizer.load(out / "joint.model")
    vocabulary = pieces.pieces()
    source = [vocabulary[id] for id in pieces.tokenize(["aa bb"]).to_list()[0]]
    engine = ctranslate2.Translator(str(out), compute_type="default")
    assert engine.translate_batch([source])[0].hypotheses[0]
    assert main(words) == 2, "what is there is not replaced"
