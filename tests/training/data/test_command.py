import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.data.__main__ import main

ROOT = Path(__file__).parents[3]
WORDS = "house tree sea land seal whale".split()
ROWS = [f"the {a} sees a {b}.\tDer {b} und {a}." for a in WORDS for b in WORDS]
EXTRA = ["no tab", "\tempty source", f"{ROWS[3]}", "same\tsame", "=== 12 ===\t--- 13"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder; gives its status, output and errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("\n".join([*ROWS, *EXTRA]) + "\n")
    (tmp_path / "test.tsv").write_text(f"{ROWS[7]}\nsomething new\tetwas Neues\n")

    def run(*arguments):
        status = main(["--tokenizer.vocab_size=320", "--data.cache=cache", *arguments])
        return (status, *capsys.readouterr())

    return run


def test_tells_what_was_left_out_and_why_and_writes_what_is_left(run, tmp_path):
    status, out, _ = run("--data.train=train.tsv", "--data.test=test.tsv", "--out=clean")
    assert status == 0
    for line in (
        "train.tsv: 41 rows, 35 pairs kept",
        "1 malformed (2.44%)",
        "train.tsv, line 37: 'no tab' -> ''",
        "1 with an empty side (2.44%)",
        "1 repeated (2.44%)",
        "1 with identical sides (2.44%)",
        "1 over 50% punctuation and digits (2.44%)",
        "train.tsv, line 41: '=== 12 ===' -> '--- 13'",
        "1 also in validation or test (2.44%)",
        "test.tsv: 2 rows, 2 pairs kept",
        "warning: 1 of 2 test sentences occur in the training text and were left out of it",
        "cut from the training text",
        "joint pieces, unigram",
        "tokens a word",
    ):
        assert line.removeprefix("test.tsv: ") in out, line
    names = sorted(path.name for path in (tmp_path / "clean").iterdir())
    assert names == [
        "lengths.png", "report.json", "report.txt", "test.tsv", "tokenizer", "train.tsv",
        "valid.tsv",
    ]  # fmt: skip
    figures = json.loads((tmp_path / "clean" / "report.json").read_text())
    assert figures["tokens"]["source"]["tokens"] > 0
    pairs = figures["pairs"]
    for part in ("train", "valid", "test"):
        lines = (tmp_path / "clean" / f"{part}.tsv").read_text().splitlines()
        assert len(lines) == pairs[part]
    assert (tmp_path / "clean" / "report.txt").read_text() in out
    assert (tmp_path / "clean" / "lengths.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_that_cannot_show_a_text_shows_it_escaped(run, tmp_path, encoding):
    (tmp_path / "odd.tsv").write_text("\n".join([*ROWS, "весна – \u20ac\tвесна – \u20ac"]))
    process = subprocess.run(
        [sys.executable, "-m", "training.data", "--data.train=odd.tsv", "--out=clean",
         "--tokenizer.vocab_size=320", "--data.cache=cache"],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "\\u0432" in process.stdout
    assert "весна" in (tmp_path / "clean" / "report.txt").read_text("utf-8")


def test_a_reader_that_leaves_early_is_no_error(run, tmp_path):
    command = f"{sys.executable} -m training.data --data.train=train.tsv --data.cache=c | true"
    process = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 141 and process.stderr == ""


def test_without_matplotlib_all_but_the_picture_is_made(run, tmp_path, monkeypatch):
    monkeypatch.setattr("training.data.__main__.find_spec", lambda name: None)
    status, out, _ = run("--data.train=train.tsv", "--out=clean")
    assert status == 0 and "kformer[plots]" in out
    assert not (tmp_path / "clean" / "lengths.png").exists()


def test_weights_are_told_by_what_an_epoch_sees(run, tmp_path):
    (tmp_path / "more.tsv").write_text("new words\tneue Wörter\nmore of them\tmehr davon\n")
    status, out, _ = run(
        "--data.train=[train.tsv, more.tsv]", "--data.weights=[0.5, 10]", "--data.test=test.tsv",
        "--data.valid=test.tsv", "--out=clean",
    )  # fmt: skip
    assert status == 0 and "an epoch sees 20 pairs of more.tsv" in out


def test_a_folder_that_is_there_stays(run, tmp_path):
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "mine").write_text("kept")
    for arguments in ([], ["--overwrite"]):
        status, _, err = run("--data.train=train.tsv", "--out=clean", *arguments)
        assert status == 2 and "clean" in err and err.count("\n") == 1
    assert os.listdir(tmp_path / "clean") == ["mine"]
    assert run("--data.train=train.tsv", "--out=other")[0] == 0
    assert run("--data.train=train.tsv", "--out=other")[0] == 2
    assert run("--data.train=train.tsv", "--out=other", "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.train=missing.tsv"], "missing.tsv: no such file"),
        (["--data.train=train.tsv", "--data.strict=true"], "train.tsv, line 37: malformed"),
        (["--data.train=train.tsv", "--data.weights=[1, 2]"], "data.weights"),
        (["--data.train=[train.tsv, train.tsv]"], "each corpus once"),
        (["--data.train=train.tsv", "--cleaning.source_script=Elvish"], "cleaning.source_script"),
        (["--data.train=train.tsv", "--tokenizer.file=none.model"], "none.model: no such file"),
        (["--data.train=train.tsv", "--tokenizer.kind=byte", "--tokenizer.sampling=0.1"],
         "tokenizer.sampling"),
        (["--data.train=train.tsv", "--data.cache=train.tsv/x"], "--data.cache"),
        (["--data.train=train.tsv", "--data.weights=[1e300]"], "at most 1000"),
        (["--data.train=train.tsv", "--cleaning.source_script=[]"], "source_script must not be"),
        (["--data.train=train.tsv", "--cleaning.max_length_ratio=.nan"], "finite number"),
        (["--data.train=train.tsv", "--data.max_length=99999999999"], "below 2**31"),
        (["--data.train=train.tsv", "--tokenizer.vocab_size=2000000000"], "at most 1,000,000"),
        (["--data.train=train.tsv", "--tokenizer.file="], "tokenizer.file must be a name"),
        (["--data.train=train.tsv", "--tokenizer.vocab_size=262"], "tokenizer.vocab_size must be"),
        (["--data.train=a\nb.tsv"], "a b.tsv"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line_and_leaves_nothing(run, tmp_path, arguments, message):
    status, _, err = run(*arguments, "--out=clean")
    assert status == 2 and err.count("\n") == 1 and message in err
    left = {path.name for path in tmp_path.rglob("*") if path.suffix != ".json"}
    assert left <= {"train.tsv", "test.tsv", "cache", "files"} or any(
        name.startswith("corpus-") for name in left
    )
    assert not any("partial" in name or name == "clean" for name in left)
