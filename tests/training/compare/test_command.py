"""The command line, and one experiment from its file to its report."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.compare.conftest import TEXT
from training.compare.__main__ import main

ROOT = Path(__file__).resolve().parents[3]

SIZES = {"big": "groß", "small": "klein", "new": "neu", "old": "alt"}
THINGS = {"house": "haus", "car": "auto", "book": "buch", "fish": "fisch", "ship": "schiff"}
PLACES = {"here": "hier", "there": "dort", "today": "heute"}
PAIRS = [
    (f"the {thing} is {size} {place}", f"{THINGS[thing]}: {SIZES[size]}, {PLACES[place]}")
    for size in SIZES for thing in THINGS for place in PLACES
]  # fmt: skip


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "widths.yaml"
    path.write_text(TEXT)
    return path


def test_an_experiment_is_made_and_reported_in_a_folder_of_its_name(file, commands, capsys):
    assert main(["widths.yaml"]) == 0
    assert len(commands.trained) == 4
    folder = file.parent / "runs" / "widths"
    assert {"report.md", "results.json", "wide-1", "narrow-2"} <= set(os.listdir(folder))
    assert "| narrow |" in capsys.readouterr().out


def test_only_a_report_is_made_if_asked(file, commands, capfd):
    assert main(["widths.yaml", "--report-only"]) == 2
    assert "runs/widths: there is nothing to report yet" in capfd.readouterr().err
    commands.stop_at = "wide-2"
    assert main(["widths.yaml"]) == 130
    assert main(["widths.yaml", "--report-only"]) == 0
    assert len(commands.trained) == 3
    assert "wide-2" in (file.parent / "runs" / "widths" / "report.md").read_text()


def test_what_has_changed_is_overwritten_only_if_asked(file, commands, capfd):
    assert main(["widths.yaml", "--out", "out"]) == 0
    changed = ["widths.yaml", "--out", "out", "--set", "train.updates=8"]
    assert main(changed) == 2
    err = capfd.readouterr().err
    assert "out/wide-1: was made with other settings: train.updates 4, here 8" in err
    assert main([*changed, "--overwrite"]) == 0
    assert len(commands.overwritten) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["widht"], "unknown experiment 'widht'"),
        (["widths.yaml", "--set", "train.updates"], "--set must be KEY=VALUE"),
        (["widths.yaml", "--set", "train.updates=x"], "wide: train.updates: Expected a int"),
        (["drawn.yaml"], "drawn.yaml: searches: drawn: `temperature` must be"),
        (["lines.yaml"], "lines.yaml: variants: lines: some.txt is lines of one language; an exp"),
        (["widths.yaml", "--set=data.train=no.tsv"], "variants: wide: no.tsv: no such file"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(file, commands, capfd, arguments, message):
    (file.parent / "drawn.yaml").write_text(
        "{base: tiny, searches: {drawn: {sample: true, temperature: 0}}}"
    )
    (file.parent / "lines.yaml").write_text(
        "variants: {pairs: {}, lines: {model.kind: language_model, data.train: some.txt}}"
    )
    (file.parent / "some.txt").write_text("a line\n")
    assert main(arguments) == 2
    errors = re.findall(r"^error: (.*)$", capfd.readouterr().err, re.MULTILINE)
    assert len(errors) == 1 and message in errors[0]
    assert commands.trained == [] and not (file.parent / "runs").exists()


def test_failed_runs_are_told_at_the_end(file, commands, capfd):
    commands.fail_at = "narrow-1"
    assert main(["widths.yaml"]) == 2
    assert "1 of 4 runs failed. narrow-1: training.run ended" in capfd.readouterr().err
    assert (file.parent / "runs" / "widths" / "report.md").exists()


def test_where_all_runs_fail_it_is_told_why(file, commands, capfd):
    file.write_text("base: tiny")
    commands.fail_at = "tiny-1"
    assert main(["widths.yaml"]) == 2
    assert "1 of 1 runs failed. tiny-1: training.run ended" in capfd.readouterr().err


def compare(folder, *words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "training.compare", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        **options,
    )


@pytest.mark.slow
def test_an_interrupted_experiment_goes_on_and_ends_with_a_report(tmp_path):
    rows = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    for name, pairs in (("train", rows), ("held-out", "".join(rows.splitlines(True)[::7]))):
        (tmp_path / f"{name}.tsv").write_text(pairs, "utf-8")
    (tmp_path / "own.yaml").write_text(
        "base: tiny\n"
        "settings: {data.train: train.tsv, data.valid: held-out.tsv, data.test: held-out.tsv,\n"
        "  cleaning.held_out: false, tokenizer.vocab_size: 300, model.d_model: 32,\n"
        "  train.updates: 4, train.validate_every: 2, train.warmup_updates: 1}\n"
        "variants: {one layer: {}, two layers: {model.num_decoder_layers: 2}}\n"
        "searches: {greedy: {}, beam 2: {beam_size: 2}}\n"
    )
    # A shell's background jobs, and so their children, ignore interrupts unless told otherwise.
    process = compare(
        tmp_path, "own.yaml",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    runs = tmp_path / "runs" / "own"
    first, second = runs / "one-layer-1", runs / "two-layers-1"
    deadline = time.monotonic() + 240
    while not second.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in out, out
    finished = (first / "scores.json").stat().st_mtime_ns
    assert (first / "translations" / "beam-2.json").exists()

    process = compare(tmp_path, "own.yaml")
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert (first / "scores.json").stat().st_mtime_ns == finished
    content = json.loads((runs / "results.json").read_text())
    assert [row["name"] for row in content["rows"]] == [
        "one layer, greedy", "one layer, beam 2", "two layers, greedy", "two layers, beam 2",
    ]  # fmt: skip
    # What training itself scored with greedy search.
    for row, run in ((0, first), (2, second)):
        scores = json.loads((run / "scores.json").read_text())
        assert content["rows"][row]["runs"][0]["bleu"] == pytest.approx(scores["bleu"])
        assert content["rows"][row]["runs"][0]["chrf"] == pytest.approx(scores["chrf"])
