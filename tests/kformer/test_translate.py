import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kformer import translate
from kformer.models import Transformer
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers, WordTokenizer
from kformer.translator import Translator

ROOT = Path(__file__).resolve().parents[2]
WORDS = "one two three four five six seven eight nine ten".split()
# Blank lines, CRLF, a separator that is no line end, and no LF at the end.
LINES = ["one two", "", "three\u2028four", "   ", "five\r", "six\x0bseven", "two", "one ten nine"]
CONTENT = "\n".join(LINES).encode()


def save_run(path, **options):
    """A run folder of an untrained model whose translations differ."""
    run = RunFolder(path)
    tokenizer = WordTokenizer.learn([" ".join(WORDS)])
    size = tokenizer.vocab_size
    model = Transformer(
        size, size, d_model=16, num_heads=2, d_ff=24, num_encoder_layers=2, num_decoder_layers=2,
        norm="pre", tie="none", dropout=0.0, **options,
    )  # fmt: skip
    random = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if len(weight.shape) == 2:
            weight.assign(random.normal(size=weight.shape))
    run.save_model(model, run.best_model)
    Tokenizers(tokenizer, tokenizer).save(run.tokenizer)
    run.config.write_text("")
    return run.path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("translate") / "run")


@pytest.fixture(scope="module")
def expected(run):
    """A translation a line of `LINES`."""
    translations = Translator.from_run(run).translate(LINES)
    assert len(set(translations)) == len(LINES) - 1, "two blank ones, and no two others the same"
    return translations


@pytest.fixture
def file(tmp_path):
    def file(content: bytes) -> str:
        path = tmp_path / "input.txt"
        path.write_bytes(content)
        return str(path)

    return file


@pytest.fixture
def main(capsysbinary, monkeypatch):
    """Runs the command line: exit status, lines of stdout, stderr."""

    def main(*arguments, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        status = translate.main([str(argument) for argument in arguments])
        out, err = (stream.decode() for stream in capsysbinary.readouterr())
        assert out == "" or out.endswith("\n")
        return status, out.split("\n")[:-1], err

    return main


def error_of(result) -> str:
    status, out, err = result
    assert (status, out) == (2, [])
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    return err


def test_a_file_gives_one_line_out_for_each_line_in(main, run, file, expected):
    assert main(run, file(CONTENT)) == (0, expected, "")


def test_standard_input_is_read_without_a_file(main, run, expected):
    assert main(run, stdin=CONTENT) == (0, expected, "")


def test_line_ends_of_windows_and_a_byte_order_mark_change_nothing(main, run, file, expected):
    content = b"\xef\xbb\xbf" + "\r\n".join(LINES).encode() + b"\r\n"
    assert main(run, file(content)) == (0, expected, "")


def test_nothing_in_gives_nothing_out(main, run, file):
    assert main(run, file(b"")) == (0, [], "")
    assert main(run, file(b"\n")) == (0, [""], "")


def test_long_input_is_translated_in_order(main, run, file, expected, monkeypatch):
    monkeypatch.setattr(translate, "_CHUNK", 3)
    assert main(run, file(CONTENT)) == (0, expected, "")


def test_a_missing_run_folder_is_named(main, tmp_path, file):
    assert "no-such-run" in error_of(main(tmp_path / "no-such-run", file(b"one\n")))


def test_the_missing_piece_of_a_run_folder_is_named(main, tmp_path, file):
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "tokenizer").mkdir()
    text = error_of(main(tmp_path, file(b"one\n")))
    assert "best/model.keras is missing" in text


@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_a_file_that_cannot_be_read_is_named(main, run, tmp_path, name):
    assert str(tmp_path / name) in error_of(main(run, tmp_path / name))


@pytest.mark.parametrize("bad", [b"caf\xe9", b"\xff\xfe", b"a\xc3"])
def test_a_line_that_is_not_utf8_is_named(main, run, file, bad):
    path = file(b"one\n\n" + bad + b"\ntwo\n")
    assert f"{path}, line 3: not UTF-8" in error_of(main(run, path))


def test_a_bad_line_of_standard_input_is_named(main, run):
    assert "standard input, line 2: not UTF-8" in error_of(main(run, stdin=b"one\n\xff\n"))


def test_a_line_too_long_for_the_model_is_named_by_its_number_in_the_file(
    main, tmp_path, file, monkeypatch
):
    run = save_run(tmp_path / "learned", positions="learned", max_length=5)
    monkeypatch.setattr(translate, "_CHUNK", 2)
    path = file(b"one\n\ntwo\none two three four five\n")
    status, _, err = main(run, path)
    assert status == 2 and err.count("\n") == 1
    assert err.startswith(f"error: {path}, line 4: 5 tokens")


def test_a_process_translates_what_is_piped_into_it(run, expected):
    done = subprocess.run(
        [sys.executable, "-m", "kformer.translate", run], cwd=ROOT, input=CONTENT,
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "".join(f"{line}\n" for line in expected)


def test_a_reader_that_leaves_early_is_no_error(run):
    many = b"one two three\n" * 2000
    process = subprocess.Popen(
        [sys.executable, "-m", "kformer.translate", run], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    _, err = process.communicate(many, timeout=120)
    assert process.returncode == 141
    assert b"Traceback" not in err and b"Broken" not in err
