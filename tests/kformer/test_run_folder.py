import shutil

import keras
import numpy as np
import pytest

from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.models import Transformer
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers, WordTokenizer
from kformer.translator import Translator

WORDS = "one two three four five six seven eight nine ten".split()
SIZE = len(WORDS) + 4
TEXTS = ["one two three", "ten", "nine nine eight one four"]


def build_tokenizers(words=WORDS):
    tokenizer = WordTokenizer.learn([" ".join(words)])
    return Tokenizers(tokenizer, tokenizer)


def build_model(vocab_size=SIZE):
    """Untrained, with random weights that are large enough for translations to differ."""
    model = Transformer(
        vocab_size, vocab_size, d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1,
        num_decoder_layers=2, norm="pre", tie="none", dropout=0.0,
    )  # fmt: skip
    random = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if len(weight.shape) == 2:
            weight.assign(random.normal(size=weight.shape))
    return model


@pytest.fixture(scope="module")
def expected():
    """Translations by what is saved, from memory."""
    return Translator(TranslationGraph(build_model(), build_tokenizers())).translate(TEXTS)


@pytest.fixture
def run(tmp_path):
    """A run folder as training leaves it, as far as using it goes."""
    run = RunFolder(tmp_path / "run")
    run.save_model(build_model(), run.best_model)
    build_tokenizers().save(run.tokenizer)
    run.config.write_text("")
    return run


def message(call) -> str:
    with pytest.raises(InputError) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_model_of_another_library_is_named(run):
    keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]).save(run.best_model)
    assert "model.keras: holds no kformer model but a Sequential" in message(run.load)


def damage_in_the_middle(content: bytes) -> bytes:
    half = len(content) // 2
    return content[:half] + b"\x55" * 64 + content[half + 64 :]


def test_what_was_saved_translates_as_what_was_in_memory(run, expected):
    assert Translator.from_run(run.path).translate(TEXTS) == expected
    assert len(set(expected)) == len(TEXTS) and all(expected)


def test_a_folder_that_was_moved_translates_the_same(run, expected, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "renamed"
    shutil.move(run.path, moved)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Translator.from_run("renamed").translate(TEXTS) == expected


def test_a_save_that_fails_leaves_the_old_model_and_nothing_else(run):
    before = run.best_model.read_bytes()

    class Failing:
        def save(self, path):
            path.write_bytes(b"half a mod")
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        run.save_model(Failing(), run.best_model)
    assert run.best_model.read_bytes() == before
    assert list(run.best_model.parent.iterdir()) == [run.best_model]


def test_a_model_in_the_making_is_never_seen_under_its_name(run):
    seen = []

    class Watched:
        def save(self, path):
            path.write_bytes(b"new")
            seen.append(other.exists())

    other = run.path / "other" / "model.keras"
    run.save_model(Watched(), other)
    assert seen == [False]
    assert other.read_bytes() == b"new"


def test_saving_again_replaces_the_model(run):
    model = build_model()
    for weight in model.trainable_weights:
        weight.assign(weight * 0 + 2.0)
    run.save_model(model, run.best_model)
    assert all(np.all(weight.numpy() == 2) for weight in run.load_model().trainable_weights)


@pytest.mark.parametrize("name", ["no/such/run", "file"])
def test_what_is_no_folder_is_refused_by_name(tmp_path, name):
    (tmp_path / "file").write_text("")
    text = message(lambda: RunFolder.open(tmp_path / name))
    assert str(tmp_path / name) in text and "training.run" in text


@pytest.mark.parametrize("piece", ["config.yaml", "tokenizer", "best/model.keras"])
def test_a_missing_piece_is_named(run, piece):
    path = run.path / piece
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    text = message(lambda: RunFolder.open(run.path))
    assert str(run.path) in text and f"{piece} is missing" in text


def test_an_empty_tokenizer_folder_is_named(run):
    for file in run.tokenizer.iterdir():
        file.unlink()
    assert str(run.tokenizer) in message(RunFolder.open(run.path).load)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: b"not a model",
        lambda content: content[: len(content) // 2],
        damage_in_the_middle,
    ],
    ids=["empty", "text", "cut short", "damaged in the middle"],
)
def test_a_damaged_model_is_named(run, spoil):
    run.best_model.write_bytes(spoil(run.best_model.read_bytes()))
    assert str(run.best_model) in message(run.load_model)


def test_a_model_file_that_is_not_there_is_named(run):
    missing = run.path / "missing.keras"
    assert str(missing) in message(lambda: run.load_model(missing))


def test_a_vocabulary_of_another_size_is_refused_with_both_sizes(run):
    build_tokenizers([*WORDS, "eleven"]).save(run.tokenizer)
    text = message(run.load)
    assert f"{SIZE + 1} pieces" in text and f"{SIZE} rows" in text
    assert str(run.tokenizer) in text


def test_the_side_whose_vocabulary_does_not_fit_is_named(run):
    joint = build_tokenizers().source
    Tokenizers(joint, WordTokenizer.learn([" ".join(WORDS[:-1])])).save(run.tokenizer)
    text = message(run.load)
    assert "target vocabulary" in text and "source" not in text


@pytest.mark.parametrize("version", ["", "3"])
def test_an_export_is_told_from_a_run_folder(tmp_path, version):
    (tmp_path / version).mkdir(exist_ok=True)
    (tmp_path / version / "kformer.json").write_text("{}")
    with pytest.raises(InputError, match="is an export. Give the run folder"):
        RunFolder.open(tmp_path)


def test_what_a_language_model_is_of_is_not_guessed(tmp_path):
    run = RunFolder(tmp_path)
    run.config.write_text("model:\n  kind: transformer\n")
    assert not run.of_lines
    run.config.write_text("model:\n  kind: language_model\n")
    with pytest.raises(InputError, match="tokens.json: is missing, and says whether"):
        run.refuse_lines()


def test_a_damaged_account_of_the_tokens_is_named(tmp_path):
    run = RunFolder(tmp_path)
    run.data.mkdir()
    run.tokens_meta.write_text('{"source_tok')
    with pytest.raises(InputError, match="tokens.json: is damaged"):
        run.refuse_lines()
