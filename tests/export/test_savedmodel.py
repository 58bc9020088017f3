"""What is in an export, and what it gives."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from sacrebleu.metrics import BLEU

from export.run import main
from export.savedmodel import SIGNATURES
from kformer.errors import InputError
from kformer.run_folder import RunFolder
from kformer.translator import Translator
from tests.export.conftest import LINES, WILD

INPUTS = {
    "serving_default": ["text"], "translate_nbest": ["text"], "complete": ["text", "prefix"],
    "score": ["source", "target"], "attention": ["source", "target"], "count_tokens": ["text"],
    "count_target_tokens": ["text"],
}  # fmt: skip


@pytest.mark.parametrize("signature", SIGNATURES)
def test_signatures_take_strings_and_give_what_the_graph_gives(signature, signatures, graph):
    loaded = signatures[signature]
    specs = loaded.structured_input_signature[1]
    assert sorted(specs) == sorted(INPUTS[signature])
    assert all(spec.dtype == tf.string and spec.shape.rank == 1 for spec in specs.values())
    inputs = [tf.constant(LINES[:7]), tf.constant(LINES[3:10])][: len(specs)]
    named = dict(zip(INPUTS[signature], inputs, strict=True))
    expected = getattr(graph, SIGNATURES[signature])(*inputs)
    actual = loaded(**named)
    assert set(actual) == set(expected)
    for name, tensor in actual.items():
        assert tensor.shape[0] == 7, "the batch is first"
        assert not name.endswith("_bytes"), "REST would encode it"
        if tensor.dtype == tf.float32:
            np.testing.assert_allclose(tensor, expected[name], atol=1e-4)
        else:
            np.testing.assert_array_equal(tensor, expected[name])


def test_a_text_alone_is_as_in_a_batch_of_wild_ones(signatures):
    translate = signatures["serving_default"]
    texts = [*WILD, *(line.encode() for line in LINES[:9])]
    together = translate(text=tf.constant(texts))
    for number, text in enumerate(texts):
        alone = translate(text=tf.constant([text]))
        assert alone["translation"][0] == together["translation"][number]
        assert alone["truncated"][0] == together["truncated"][number]
        assert float(alone["score"][0]) == pytest.approx(float(together["score"][number]), abs=1e-3)
    assert together["truncated"][WILD.index(b"aa bb. " * 400)]
    np.testing.assert_array_equal(together["translation"][:3], [b"", b"", b""])
    np.testing.assert_array_equal(together["truncated"][:3], [False] * 3)


def test_no_texts_give_no_translations(signatures):
    found = signatures["serving_default"](text=tf.constant([], tf.string))
    assert found["translation"].shape == (0,)


def test_the_description_says_what_was_exported_and_of_what(exported):
    content = json.loads((exported["words", "beam"] / "1" / "kformer.json").read_text())
    assert content["search"]["kind"] == "Beam" and content["search"]["size"] == 2
    assert content["limits"]["max_source_tokens"] == 128
    assert content["corpus_fingerprint"] == "abc" and content["precision"] == "float32"
    assert set(content["versions"]) == {"kformer", "tensorflow", "keras", "tensorflow-text"}
    assert content["signatures"] == list(SIGNATURES)


def test_an_export_translates_texts_of_any_kind_like_its_run(version, graph):
    """Lines, long texts, prefixes, scores and alignments: the same interface over both."""
    saved, own = Translator.from_saved_model(version), Translator(graph)
    texts = [*LINES[:5], "", "aa bb\n\ncc", " ".join(LINES * 3)]
    prefixes = ["aa", *[""] * 7]
    for one, other in zip(
        saved.translate_nbest(texts, prefixes, with_alignments=True),
        own.translate_nbest(texts, prefixes, with_alignments=True),
        strict=True,
    ):
        assert one.parts == other.parts
        for mine, its in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (mine.text, mine.tokens, mine.ended) == (its.text, its.tokens, its.ended)
            assert mine.score == pytest.approx(its.score, abs=1e-3)
            assert str(mine.alignment) == str(its.alignment)
    for one, other in zip(
        saved.score(LINES[:4], LINES[4:8]), own.score(LINES[:4], LINES[4:8]), strict=True
    ):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_what_is_no_export_is_named(tmp_path, exported):
    with pytest.raises(InputError, match="not a whole export of kformer"):
        Translator.from_saved_model(tmp_path)
    damaged = tmp_path / "damaged"
    shutil.copytree(exported["words", "beam"] / "1", damaged)
    (damaged / "saved_model.pb").write_bytes(b"\x08\x01 no model")
    with pytest.raises(InputError, match="damaged: not a whole export"):
        Translator.from_saved_model(damaged)


# Versions


@pytest.fixture
def export(runs, tmp_path, capfd):
    """Exports without verification: status, output, errors."""

    def export(*options, base=tmp_path / "models"):
        capfd.readouterr()
        status = main([str(runs["words"].path), "--out", str(base), "--no-verify", *options])
        return status, *capfd.readouterr()

    return export


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_versions_count_on_and_are_never_replaced(export, exported, tmp_path):
    base = tmp_path / "models"
    shutil.copytree(exported["words", "beam"] / "1", base / "7")
    assert export()[0] == 0
    files = ["batching.config", "compose.yaml", "models.config", "monitoring.config"]
    assert names(base) == ["7", "8", *files]
    before = (base / "7" / "saved_model.pb").read_bytes()
    status, _, err = export("--version=7")
    assert status == 2 and "7: exists" in err and "taken: 9" in err and err.count("\n") == 1
    assert (base / "7" / "saved_model.pb").read_bytes() == before
    assert export("--version=0")[0] == 2


def test_an_export_that_does_not_verify_is_not_published(runs, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("export.verify._TEXT_OPS", set())
    base = tmp_path / "models"
    status = main([str(runs["words"].path), "--out", str(base)])
    assert status == 2
    err = capfd.readouterr().err
    assert "not published" in err and "NormalizeUTF8" in err
    (left,) = names(base)
    assert left.startswith(".") and left.endswith(".partial")
    assert (base / left / "saved_model.pb").is_file(), "it can be looked at"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample"], "--sample"),
        (["--quantization=int8"], "--quantization is for --to ctranslate2"),
        (["--to=ctranslate2", "--xla"], "--xla, --version and --no-verify are for --to savedmodel"),
        (["--n-best=2"], "--beam-size 2"),
        (["--beam-size=0", "--n-best=0"], "`size`"),
    ],
)
def test_a_search_that_cannot_be_exported_is_named(export, tmp_path, options, message):
    status, _, err = export(*options)
    assert status == 2 and message in err and not (tmp_path / "models").exists()


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_half_precision_halves_the_weights_and_tells_what_it_costs(
    export, exported, tmp_path, precision
):
    status, out, _ = export(f"--precision={precision}", "--version=5")
    assert status == 0
    assert "in float32, " in out and f"in {precision}: " in out

    def size(folder):
        (data,) = (folder / "variables").glob("*.data-*")
        return data.stat().st_size

    half, whole = size(tmp_path / "models" / "5"), size(exported["words", "beam"] / "1")
    assert half < 0.6 * whole
    translate = tf.saved_model.load(tmp_path / "models/5").signatures["serving_default"]
    assert translate(text=tf.constant(LINES))["score"].dtype == tf.float32


@pytest.mark.slow
def test_the_cost_of_a_precision_is_told_as_the_run_is_scored(runs, tmp_path, capsys):
    run = RunFolder(shutil.copytree(runs["words"].path, tmp_path / "run"))
    run.config.write_text("scoring:\n  bleu_tokenize: char\n")
    options = ["--precision=bfloat16", "--no-verify", "--max-length=12"]
    assert main([str(run.path), "--out", str(tmp_path / "models"), *options]) == 0
    sources, references = zip(*run.pairs("test"), strict=True)
    translations = Translator.from_run(run.path, max_length=12).translate(sources)
    expected, usual = (
        BLEU(tokenize=kind).corpus_score(translations, [references]).score
        for kind in ("char", "13a")
    )
    assert f"test BLEU {expected:.2f} in float32, " in capsys.readouterr().out
    assert abs(expected - usual) > 0.1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_export_is_hardly_larger_than_its_weights(tmp_path, save_run, precision):
    """A model of the default size; what is small is mostly graph."""
    from tests.export.conftest import tokenizer

    run = save_run(
        tmp_path / "run", tokenizer("subwords"), {"valid": LINES, "test": LINES[:3]}, d_model=256,
        d_ff=1024, num_heads=4, num_encoder_layers=3, num_decoder_layers=3,
    )  # fmt: skip
    status = main([str(run.path), "--out", str(tmp_path / "models"), "--no-verify",
                   f"--precision={precision}"])  # fmt: skip
    assert status == 0
    model, _ = run.load()
    files = [path for path in (tmp_path / "models" / "1").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    weights = model.count_params() * (4 if precision == "float32" else 2)
    assert size <= 1.15 * weights


def test_without_attention_there_is_no_signature_for_it(exported, runs):
    version = exported["no attention", "greedy"] / "1"
    loaded = tf.saved_model.load(version).signatures
    assert sorted(loaded) == sorted(set(SIGNATURES) - {"attention"})
    assert "attention" not in json.loads((version / "kformer.json").read_text())["signatures"]
    saved = Translator.from_saved_model(version)
    own = Translator.from_run(runs["no attention"].path)
    assert saved.translate(LINES[:9]) == own.translate(LINES[:9])
    for one, other in zip(
        saved.score(LINES[:4], LINES[4:8]), own.score(LINES[:4], LINES[4:8]), strict=True
    ):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
    for translator in (saved, own):
        with pytest.raises(InputError, match="^the model has no attention$"):
            translator.align(LINES[:2], LINES[:2])
        with pytest.raises(InputError, match="^the model has no attention$"):
            translator.translate_nbest(LINES[:2], with_alignments=True)
