import re

from benchmarks.serving import main
from export.run import main as export
from kformer.text import WordTokenizer

LINES = [f"one two {word}" for word in "three four five six seven eight".split()]


def test_serving_is_measured_one_by_one_and_in_batches(
    tmp_path, save_run, native_program, monkeypatch, capsys
):
    monkeypatch.setattr("benchmarks.native.build", lambda folder: native_program)
    tokenizer = WordTokenizer.learn(LINES)
    run = save_run(tmp_path / "run", tokenizer, {"valid": LINES, "test": LINES * 6})
    out = tmp_path / "models"
    assert export([str(run.path), "--out", str(out), "--no-verify"]) == 0
    assert main([str(out / "1"), str(run.path)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"loaded in [\d.]+ s\nfirst request [\d.]+ s\n", text)
    assert re.findall(r"batches of +(\d+): p50 \d+ ms, p99 \d+ ms, [\d.]+ sentences/s", text) == [
        "1",
        "32",
    ]
