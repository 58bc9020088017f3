"""The export in a process without Python, by the loader that TensorFlow Serving uses."""

import shutil

import pytest
import tensorflow as tf

from benchmarks.native import NativeServer
from export.run import main
from export.verify import VerificationError, check_operations, verify
from tests.export.conftest import LINES, WILD


def test_raw_strings_translate_to_the_bytes_of_the_run(native_program, version, graph, tmp_path):
    """Moved elsewhere, in batches of any size, whatever they hold."""
    moved = shutil.copytree(version, tmp_path / "elsewhere" / "3")
    lines = [line.encode() for line in LINES]
    batches = [[], WILD[:1], [b"", b" ", b""], lines[:7], [*lines[:56], *WILD], WILD]
    with NativeServer(native_program, moved) as server:
        for texts in batches:
            reply = server.translate(texts)
            expected = graph.translate(tf.constant(texts, tf.string))
            assert reply.translations == list(expected["translation"].numpy())
            assert reply.truncated == list(expected["truncated"].numpy())
            assert reply.scores == pytest.approx(list(expected["score"].numpy()), abs=1e-3)


class Plain(tf.Module):
    """A model with its vocabulary, saved as one would without knowing."""

    def __init__(self, model, tokenizers):
        super().__init__()
        self.model, self.tokenizers = model, tokenizers

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(self, text):
        """The likeliest words, without a search, which would take long to save."""
        ids = self.tokenizers.source.tokenize(text).to_tensor()
        logits = self.model((ids, ids))
        words = self.tokenizers.target.detokenize(tf.argmax(logits, axis=2, output_type=tf.int32))
        score = tf.reduce_max(logits, axis=[1, 2])
        return {"translation": words, "score": score, "truncated": score < 0}


def test_what_only_python_can_load_is_refused(native_program, runs, tmp_path):
    module = Plain(*runs["words"].load())
    tf.saved_model.save(module, tmp_path / "1", signatures={"serving_default": module.serve})
    loaded = tf.saved_model.load(tmp_path / "1").signatures["serving_default"]
    assert loaded(text=tf.constant(LINES[:3]))["translation"].shape == (3,)
    with pytest.raises(RuntimeError, match="Could not find variable"):
        with NativeServer(native_program, tmp_path / "1") as server:
            server.translate([b"aa bb"])
    with pytest.raises(VerificationError, match="a fresh process cannot use it"):
        verify(tmp_path / "1", LINES[:3], [""] * 3)


def save(folder, function):
    module = tf.Module()
    module.serve = tf.function(
        function, input_signature=[tf.TensorSpec([None], tf.string, name="text")]
    )
    tf.saved_model.save(module, folder, signatures={"serving_default": module.serve})
    return folder


def test_python_inside_a_graph_is_refused(tmp_path):
    def in_python(text):
        return {"translation": tf.numpy_function(lambda texts: texts, [text], tf.string)}

    with pytest.raises(VerificationError, match="stock server lacks: PyFunc"):
        check_operations(save(tmp_path, in_python))


def test_a_default_signature_that_must_be_compiled_is_refused(tmp_path):
    @tf.function(jit_compile=True)
    def compiled(lengths):
        return lengths * 2

    def nested(text):
        return {"translation": text, "length": compiled(tf.strings.length(text))}

    with pytest.raises(VerificationError, match="serving_default must be compiled by XLA"):
        check_operations(save(tmp_path, nested))


def test_other_translations_than_the_runs_are_refused(tmp_path):
    folder = save(tmp_path, lambda text: {"translation": text})
    with pytest.raises(VerificationError, match="text 2 translates to 'b' by the Python loader"):
        verify(folder, ["a", "b"], ["a", "something else"])


@pytest.mark.slow
def test_the_compiled_twin_translates_the_same(runs, tmp_path, native_program):
    options = ["--xla", "--no-verify", "--beam-size=3", "--length-penalty=0.6"]
    assert main([str(runs["words"].path), "--out", str(tmp_path), *options]) == 0
    signatures = tf.saved_model.load(tmp_path / "1").signatures
    texts = tf.constant([*LINES[:12], "", "aa " * 40])
    plain, compiled = (
        signatures[name](text=texts) for name in ("serving_default", "translate_xla")
    )
    for name in ("translation", "truncated"):
        assert list(plain[name].numpy()) == list(compiled[name].numpy())
    assert list(plain["score"].numpy()) == pytest.approx(list(compiled["score"].numpy()), abs=1e-3)
    check_operations(tmp_path / "1")
    with NativeServer(native_program, tmp_path / "1") as server:
        assert server.translate([b"aa bb"]).translations == [
            signatures["serving_default"](text=tf.constant(["aa bb"]))["translation"].numpy()[0]
        ]
