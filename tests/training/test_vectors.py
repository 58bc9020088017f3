from types import SimpleNamespace

import numpy as np
import pytest

from kformer.errors import InputError
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers, WordTokenizer
from training.config import Config, ModelConfig, TrainConfig
from training.run import main
from training.vectors import begin_with_vectors, check_vectors, read_vectors

WORDS = "house tree sea land seal whale stone river".split()
OPTIONS = [
    "tiny", "--tokenizer.kind=word", "--tokenizer.joint=false", "--model.tie=none",
    "--model.embedding_dim=6", "--model.d_model=16", "--model.d_ff=16", "--scoring.samples=0",
    "--train.precision=float32", "--train.batch_tokens=128", "--train.warmup_updates=2",
    "--train.validate_every=2", "--data.train=text.tsv", "--run=run",
]  # fmt: skip


@pytest.fixture
def vectors(tmp_path):
    """Six numbers a word, spread as widely as published ones."""
    random = np.random.default_rng(0)
    table = {word: random.normal(0.2, 0.6, 6).astype("float32") for word in WORDS}
    lines = (" ".join([word, *map(str, row)]) for word, row in table.items())
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(lines))
    return path, table


def config(path, **model):
    return Config(model=ModelConfig(tie="none", **model), train=TrainConfig(source_vectors=path))


def test_a_dimension_other_than_the_models_is_refused_by_its_keys(vectors):
    path, _ = vectors
    check_vectors(config(str(path), embedding_dim=6))
    check_vectors(config(str(path), d_model=6))
    for model, end in (({"embedding_dim": 8}, "8"), ({"d_model": 8}, "8, as model.d_model")):
        with pytest.raises(InputError, match=f"vectors: .*model.embedding_dim must be 6.* {end}$"):
            check_vectors(config(str(path), **model))
    with pytest.raises(InputError, match="train.source_vectors: no.txt: cannot be read"):
        check_vectors(config("no.txt"))


def test_tables_have_the_words_of_their_side_and_their_share_of_the_text(vectors, tmp_path):
    path, table = vectors
    tokenizers = Tokenizers(WordTokenizer.learn(["sea Tree x"]), WordTokenizer.learn(["land"]))
    tokenizers.save(tmp_path / "tokenizer")
    ids = {word: id for id, word in enumerate(tokenizers.source.pieces())}
    tokens = np.array([ids["sea"]] * 5 + [ids["Tree"], ids["x"], ids["x"]], np.uint16)
    store = SimpleNamespace(source_tokens=tokens, target_tokens=tokens[:0])
    prepared = SimpleNamespace(tokenizer=tmp_path / "tokenizer", train=store)
    tables = read_vectors(config(str(path), embedding_dim=6), prepared)
    assert list(tables) == ["source"]
    matrix, coverage = tables["source"]
    np.testing.assert_array_equal(matrix[[ids["sea"], ids["Tree"]]], [table["sea"], table["tree"]])
    assert (coverage.exact, coverage.lower_cased, coverage.text) == (1, 1, 6 / 8)


def test_tables_enter_with_the_spread_of_new_weights(random_transformer):
    model = random_transformer(9, embedding_dim=6)
    embedding, other = model.source_embedding.embedding, model.target_embedding.embedding.numpy()
    before = np.sqrt(np.mean(embedding.numpy() ** 2))
    table = np.random.default_rng(0).normal(3, 7, size=(9, 6)).astype("float32")
    begin_with_vectors(model, {"source": (table, None)})
    after = embedding.numpy()
    assert np.sqrt(np.mean(after**2)) == pytest.approx(before, rel=1e-5)
    np.testing.assert_allclose(after / after[0, 0], table / table[0, 0], rtol=1e-4)
    np.testing.assert_array_equal(model.target_embedding.embedding, other)


def test_a_run_begins_with_vectors_and_goes_on_without_them(vectors, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    path, table = vectors
    rows = [f"the {a} sees a {b}\tjetzt sieht {b} den {a}" for a in WORDS for b in WORDS]
    (tmp_path / "text.tsv").write_text("\n".join(rows))
    begin = [f"--train.source_vectors={path}", "--train.frozen=[source_embedding/embedding]"]
    assert main([*OPTIONS, *begin, "--train.updates=4"]) == 0
    assert "vectors     source: for 8 of 11 pieces (72.7%" in capfd.readouterr().out

    def source_table():
        run = RunFolder("run")
        ids = {word: id for id, word in enumerate(run.load_tokenizers().source.pieces())}
        return run.load_model().source_embedding.embedding.numpy(), ids

    found, ids = source_table()
    assert np.sqrt(np.mean(found**2)) == pytest.approx(1 / 4, rel=0.15)  # d_model 16
    factor = found[ids["sea"], 0] / table["sea"][0]
    for word in WORDS:
        np.testing.assert_allclose(found[ids[word]], factor * table[word], rtol=1e-4)
    path.unlink()
    assert main(["run", "--resume", "--train.updates=6"]) == 0
    np.testing.assert_array_equal(source_table()[0], found)
