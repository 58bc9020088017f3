import socket
import tempfile

import numpy as np
import pytest

from benchmarks.native import build
from kformer.models import LanguageModel, Recurrent, Transformer
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers


def random_transformer(vocab_size, **options):
    """Untrained, float32, with weights so large that other sources have other translations.

    One layer deep, as every further one is traced once more; tests of layers ask for two.
    """
    sizes = dict(
        source_vocab_size=vocab_size, target_vocab_size=vocab_size, d_model=16, num_heads=2,
        d_ff=24, num_encoder_layers=1, num_decoder_layers=1, norm="pre", tie="none", dropout=0.0,
        dtype="float32",
    )  # fmt: skip
    return _with_large_weights(Transformer(**{**sizes, **options}))


def random_recurrent(vocab_size, **options):
    """The same of a recurrent model."""
    sizes = dict(
        source_vocab_size=vocab_size, target_vocab_size=vocab_size, d_model=16,
        num_encoder_layers=1, num_decoder_layers=1, tie="none", dropout=0.0, dtype="float32",
    )  # fmt: skip
    return _with_large_weights(Recurrent(**{**sizes, **options}))


def _with_large_weights(model):
    random = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if len(weight.shape) == 2:
            weight.assign(random.normal(size=weight.shape))
    return model


def random_language_model(vocab_size, **options):
    """The same of a language model."""
    sizes = dict(vocab_size=vocab_size, d_model=16, num_heads=2, d_ff=24, num_decoder_layers=1)
    model = LanguageModel(**{**sizes, "tie": "none", "dropout": 0.0, "dtype": "float32", **options})
    random = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if len(weight.shape) == 2:
            weight.assign(random.normal(size=weight.shape))
    return model


@pytest.fixture(scope="session", name="random_transformer")
def random_transformer_fixture():
    return random_transformer


@pytest.fixture(scope="session", name="random_recurrent")
def random_recurrent_fixture():
    return random_recurrent


@pytest.fixture(scope="session", name="random_language_model")
def random_language_model_fixture():
    return random_language_model


@pytest.fixture(scope="session")
def save_run():
    """Makes a run folder as training leaves it, as far as using it goes."""

    def save_run(path, tokenizer, texts=None, build=random_transformer, **options):
        pairs = {part: [(line, line) for line in lines] for part, lines in (texts or {}).items()}
        model = build(tokenizer.vocab_size, **options)
        return _save_run(path, tokenizer, model, pairs, '{"fingerprint": "abc"}')

    return save_run


@pytest.fixture(scope="session")
def save_lines_run():
    """Makes a run folder of a language model of lines of one language."""

    def save_lines_run(path, tokenizer, texts=None, **options):
        pairs = {part: [("", line) for line in lines] for part, lines in (texts or {}).items()}
        model = random_language_model(tokenizer.vocab_size, **options)
        meta = '{"fingerprint": "abc", "source_tokens": 0}'
        return _save_run(path, tokenizer, model, pairs, meta)

    return save_lines_run


def _save_run(path, tokenizer, model, pairs, tokens_meta):
    run = RunFolder(path)
    run.save_model(model, run.best_model)
    Tokenizers(tokenizer, tokenizer).save(run.tokenizer)
    run.config.write_text("")
    run.data.mkdir(exist_ok=True)
    for part, rows in pairs.items():
        run.text(part).write_text("".join(f"{s}\t{t}\n" for s, t in rows), "utf-8")
    run.tokens_meta.write_text(tokens_meta)
    return run


@pytest.fixture
def free_addresses():
    """Gives so many addresses of this machine that nobody listens on."""

    def free_addresses(count):
        sockets = [socket.socket() for _ in range(count)]
        for own in sockets:
            own.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{own.getsockname()[1]}" for own in sockets]
        for own in sockets:
            own.close()
        return addresses

    return free_addresses


@pytest.fixture(scope="session")
def native_program(tmp_path_factory):
    """The program that loads a SavedModel without Python: linking it takes seconds."""
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory):
    """Corpora are prepared once for all tests, and nothing of it stays, nor of what TensorFlow
    writes for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        yield
