"""Ids without TensorFlow: those of the graph, and those drawn by chance."""

import itertools
import json
import math
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.normal_form import normal_form
from kformer.subwords.encode import Encoder
from kformer.subwords.learn import learn
from kformer.text import SentencePieceTokenizer

TEXT = "The cat sat over the green hills. 我爱 ▁ 𝔘 don't"


def lists(encoded) -> list[list[int]]:
    ids, lengths = encoded
    assert ids.dtype == np.int32 and lengths.dtype == np.int64 and lengths.sum() == len(ids)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def same(first, second) -> bool:
    return all(map(np.array_equal, first, second))


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.one_of(st.text(), st.text(st.sampled_from("the ca▁▅ \u0301⁇<s>\x01我"))), min_size=1
    )
)
def test_ids_are_those_of_the_graph(model, texts):
    texts = [normal_form(text) for text in texts]
    expected = SentencePieceTokenizer(model).tokenize(texts).to_list()
    assert lists(Encoder(model).encode(texts)) == expected


def test_ids_of_the_corpus_are_those_of_the_graph(model, lines):
    lines = [normal_form(line) for line in lines]
    expected = SentencePieceTokenizer(model).tokenize(lines).to_list()
    assert lists(Encoder(model).encode(lines)) == expected


def test_no_texts_and_empty_texts(model):
    encoder = Encoder(model)
    for encoded in (encoder.encode, lambda texts: encoder.sample(texts, 0.1, 1)):
        ids, lengths = encoded([])
        assert ids.shape == lengths.shape == (0,)
        ids, lengths = encoded(["", ""])
        assert ids.shape == (0,) and lengths.tolist() == [0, 0]


def test_bytes_are_known(model):
    encoder = Encoder(model)
    pieces = SentencePieceTokenizer(model).pieces()
    assert len(pieces) == encoder.vocab_size
    assert encoder.is_byte.dtype == bool
    assert [pieces[id] for id in np.flatnonzero(encoder.is_byte)] == [
        f"<0x{byte:02X}>" for byte in range(256)
    ]


def test_a_sample_is_a_function_of_its_arguments(models):
    for kind in ("unigram", "bpe"):
        encoder = Encoder(models[kind])
        first = encoder.sample([TEXT] * 50, 0.3, 7)
        encoder.sample([TEXT] * 3, 0.3, 8)
        sentencepiece.set_random_generator_seed(123)
        assert same(first, encoder.sample([TEXT] * 50, 0.3, 7))
        assert same(first, Encoder(models[kind]).sample([TEXT] * 50, 0.3, 7))
        with ThreadPoolExecutor(1) as pool:
            assert same(first, pool.submit(encoder.sample, [TEXT] * 50, 0.3, 7).result())
        assert not same(first, encoder.sample([TEXT] * 50, 0.3, 8))


def test_a_sample_is_the_same_in_every_process(models, tmp_path):
    for kind in ("unigram", "bpe"):
        (tmp_path / kind).write_bytes(models[kind])
    code = (
        "import sys, pathlib; from kformer.subwords.encode import Encoder\n"
        "for kind in ('unigram', 'bpe'):\n"
        "    encoder = Encoder((pathlib.Path(sys.argv[1]) / kind).read_bytes())\n"
        f"    print(encoder.sample([{TEXT!r}] * 50, 0.3, 7)[0].tolist())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
    )
    here = [
        Encoder(models[kind]).sample([TEXT] * 50, 0.3, 7)[0].tolist() for kind in ("unigram", "bpe")
    ]
    assert [json.loads(line) for line in other.stdout.splitlines()] == here


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_bpe_dropout_draws_as_often_as_that_of_sentencepiece(alpha):
    choose = random.Random(0)
    model = learn([" ".join("".join(choose.choices("ab", k=6)) for _ in range(500))], 300, "bpe")
    peer = sentencepiece.SentencePieceProcessor(model_proto=model)
    draws = 6000
    for word in ("ababba", "bbaaba"):
        own = Counter(map(tuple, lists(Encoder(model).sample([word] * draws, alpha, 3))))
        theirs = Counter(
            map(
                tuple, peer.encode([word] * draws, enable_sampling=True, alpha=alpha, nbest_size=-1)
            )
        )
        assert len(own) > 5
        for cut in own.keys() | theirs.keys():
            both = (own[cut] + theirs[cut]) / (2 * draws)
            error = math.sqrt(2 * both * (1 - both) / draws)
            assert abs(own[cut] - theirs[cut]) / draws <= 5 * error, (cut, own[cut], theirs[cut])


def test_samples_drawn_at_the_same_time_do_not_disturb_each_other(models):
    encoder = Encoder(models["unigram"])
    texts = ["Several threads draw at once.", "Each has its own seed."] * 200
    alone = [encoder.sample(texts, 0.2, seed)[0] for seed in range(8)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda seed: encoder.sample(texts, 0.2, seed)[0], range(8)))
    assert all(map(np.array_equal, alone, together))


def test_sampled_ids_are_other_cuts_of_the_same_text(model, models):
    text = normal_form(TEXT)
    cuts = lists(Encoder(model).sample([text] * 20, 0.2, 1))
    tokenizer = SentencePieceTokenizer(model)
    shown = {
        text.decode() for text in tokenizer.detokenize(tf.ragged.constant(cuts, tf.int32)).numpy()
    }
    assert shown == {text}
    one_way = model in (models["character"], models["bytes"])
    assert len(set(map(tuple, cuts))) == 1 if one_way else 10 < len(set(map(tuple, cuts)))


def test_dropout_of_no_merge_and_of_every_merge(models):
    encoder = Encoder(models["bpe"])
    pieces = SentencePieceTokenizer(models["bpe"]).pieces()
    assert same(encoder.sample([TEXT], 0.0, 1), encoder.encode([TEXT]))
    ids, _ = encoder.sample([TEXT], 1.0, 1)
    assert all(len(pieces[id]) == 1 or encoder.is_byte[id] for id in ids)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_unigram_cuts_are_drawn_by_their_probability_to_the_power_of_alpha(alpha):
    """Against all cuts of a word, enumerated (Kudo 2018, section 3.1, over the whole lattice)."""
    choose = random.Random(0)
    model = learn([" ".join("".join(choose.choices("ab", k=4)) for _ in range(500))], 280)
    peer = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = {peer.id_to_piece(id): id for id in range(260, peer.vocab_size())}
    word, draws = "▁abab", 4000
    weights = {}
    for borders in itertools.product([False, True], repeat=len(word) - 1):
        places = [0, *(n + 1 for n, border in enumerate(borders) if border), len(word)]
        cut = [word[start:end] for start, end in itertools.pairwise(places)]
        if all(piece in ids for piece in cut):
            score = sum(peer.get_score(ids[piece]) for piece in cut)
            weights[tuple(ids[piece] for piece in cut)] = math.exp(alpha * score)
    assert len(weights) > 3
    drawn = Counter(map(tuple, lists(Encoder(model).sample(["abab"] * draws, alpha, 3))))
    assert set(drawn) <= set(weights)
    for cut, weight in weights.items():
        probability = weight / sum(weights.values())
        error = math.sqrt(probability * (1 - probability) / draws)
        assert abs(drawn[cut] / draws - probability) <= 5 * error + 1 / draws


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe\x00"])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(ValueError, match="empty|not a SentencePiece model"):
        Encoder(content)
