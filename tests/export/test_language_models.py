"""Exports of language models: of pairs, which translate, and of lines, which go on."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.native import NativeServer
from export.run import main
from kformer.generation import GenerationGraph
from kformer.graph import TranslationGraph
from kformer.search import Greedy, Sample
from kformer.text import WordTokenizer
from kformer.translator import Translator
from tests.export.conftest import LINES, WILD

WORDS = WordTokenizer.learn(LINES)


@pytest.fixture(scope="module")
def lines_run(tmp_path_factory, save_lines_run):
    texts = {"valid": LINES, "test": LINES[:9]}
    return save_lines_run(tmp_path_factory.mktemp("lines") / "run", WORDS, texts)


def assert_served_as(graph, folder, native_program):
    batches = [[], WILD[:1], [line.encode() for line in LINES[:7]], WILD]
    with NativeServer(native_program, folder) as server:
        for texts in batches:
            reply = server.translate(texts)
            expected = graph.translate(tf.constant(texts, tf.string))
            assert reply.translations == list(expected["translation"].numpy())
            assert reply.scores == pytest.approx(list(expected["score"].numpy()), abs=1e-3)


@pytest.mark.slow
def test_translating_by_prefix_is_served_as_in_the_run(
    native_program, save_run, random_language_model, tmp_path
):
    run = save_run(tmp_path / "run", WORDS, {"valid": LINES}, build=random_language_model)
    assert main([str(run.path), "--out", str(tmp_path / "base"), "--no-verify"]) == 0
    graph = TranslationGraph(*run.load(), Greedy())
    assert_served_as(graph, tmp_path / "base" / "1", native_program)


def test_how_lines_go_on_is_served_as_in_the_run(native_program, lines_run, tmp_path, capsys):
    options = ["--sample", "--seed=3", "--max-length=12"]
    assert main([str(lines_run.path), "--out", str(tmp_path), *options]) == 0
    assert "attention" not in capsys.readouterr().out
    graph = GenerationGraph(*lines_run.load(), Sample(seed=3), max_length=12)
    assert_served_as(graph, tmp_path / "1", native_program)
    prompt = tf.constant(["aa bb"])
    (text,) = graph.translate(prompt)["translation"].numpy()
    assert text.startswith(b"aa bb")
    whole = graph.complete(tf.constant([""]), prompt)
    np.testing.assert_array_equal(whole["translation"][:, 0], [text])
    with pytest.raises(ValueError, match="a model of lines, which translates nothing"):
        Translator.from_saved_model(tmp_path / "1")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--length-factor=3", "--length-factor is about sources"),
        ("--alignment-layer=0", "--alignment-layer is about sources"),
        ("--xla", "--xla is for models that translate"),
    ],
)
def test_what_needs_a_source_is_refused_in_one_line(lines_run, tmp_path, capsys, option, message):
    assert main([str(lines_run.path), "--out", str(tmp_path / "base"), option]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "base").exists()


def test_the_cost_of_a_precision_is_told_in_perplexity(lines_run, tmp_path, capsys):
    options = ["--precision=bfloat16", "--no-verify", "--max-length=3"]
    assert main([str(lines_run.path), "--out", str(tmp_path), *options]) == 0
    assert "test perplexity" in capsys.readouterr().out
