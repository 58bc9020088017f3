"""A training on lines of one language, from the text to a score and a prompt continued."""

import json
import math
import re

import numpy as np
import pytest

from kformer import generate
from kformer.losses import token_cross_entropy
from kformer.run_folder import RunFolder
from training import average, backtranslate, evaluate
from training.perplexity import score_lines
from training.run import main

WORDS = "red green blue old new big small fast slow good bad hot cold".split()
LINES = [f"the {a} {b} house" for a in WORDS for b in WORDS if a != b]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run of lines, and what was printed."""
    folder = tmp_path_factory.mktemp("lines")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in LINES))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        status = main([
            "tiny", "--run=r", "--model.kind=language_model", "--data.train=text.txt",
            "--tokenizer.kind=word", "--model.d_model=16", "--model.d_ff=16",
            "--train.batch_tokens=256", "--train.updates=40", "--train.validate_every=20",
            "--train.warmup_updates=2", "--train.precision=float32", "--scoring.samples=2",
            "--train.max_minutes=30", "--train.learning_rate=0.01",
        ])  # fmt: skip
    assert status == 0
    return folder / "r"


def test_it_is_measured_and_kept_by_its_loss_and_ends_with_a_perplexity(trained):
    run = RunFolder(trained)
    rounds = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert len(rounds) == 2 and not any("bleu" in name for name in rounds[0])
    assert rounds[1]["val_loss"] < rounds[0]["val_loss"] < math.log(20)
    scores = json.loads(run.scores.read_text())
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    # No line can be told from "the COLOUR THING house" better than by the two words.
    assert 1 < scores["perplexity"] < 13


def test_the_perplexity_is_that_of_the_models_logits(trained):
    run = RunFolder(trained)
    model, tokenizers = run.load()
    lines = [line for _, line in run.pairs("test")]
    total = tokens = characters = 0
    for line in lines:
        ids = tokenizers.target.tokenize([line])[0].numpy().tolist()
        logits = model((np.array([[3]]), np.array([[2, *ids]])))
        total += float(np.sum(token_cross_entropy(np.array([[*ids, 3]]), logits)))
        tokens += len(ids) + 1
        characters += len(line) + 1
    scores = score_lines(run)
    assert (scores.lines, scores.tokens, scores.too_long) == (len(lines), tokens, 0)
    assert scores.loss == pytest.approx(total / tokens, rel=1e-4)
    assert scores.character_perplexity == pytest.approx(math.exp(total / characters), rel=1e-4)
    assert json.loads(run.scores.read_text())["loss"] == pytest.approx(scores.loss, rel=1e-6)


def test_samples_are_lines_continued_from_their_first_half(trained):
    text = RunFolder(trained).samples.read_text()
    rounds = re.split(r"^update \d+  perplexity [\d.]+\n", text, flags=re.MULTILINE)[1:]
    assert len(rounds) == 2
    for of_round in rounds:
        rows = [line.split(maxsplit=1) for line in of_round.splitlines()]
        assert [name for name, _ in rows] == ["beginning", "continued", "line"] * 2
        for (_, beginning), (_, continued), (_, line) in zip(
            rows[::3], rows[1::3], rows[2::3], strict=True
        ):
            assert line in LINES and line.startswith(beginning) and beginning.count(" ") == 1
            assert continued.startswith(beginning)


def test_the_commands_after_it_know_what_it_is(trained, capfd, tmp_path):
    (tmp_path / "other.txt").write_text("the red old house\n\n")
    assert evaluate.main([str(trained)]) == 0
    assert capfd.readouterr().out == f"{score_lines(RunFolder(trained))}\n"
    assert evaluate.main([str(trained), "--data", str(tmp_path / "other.txt")]) == 0
    assert "5 tokens in 1 lines" in capfd.readouterr().out
    assert evaluate.main([str(trained), "--output", str(tmp_path / "out")]) == 2
    assert average.main([str(trained), "--out", str(tmp_path / "mean")]) == 0
    assert re.search(r"validation perplexity [\d.]+ of a token.*mean\n", capfd.readouterr().out)
    out = str(tmp_path / "back.tsv")
    assert backtranslate.main([str(trained), str(tmp_path / "other.txt"), "--out", out]) == 2
    assert "translates nothing" in capfd.readouterr().err
    assert generate.main([str(trained), "--prompt=the red", "--greedy"]) == 0
    assert capfd.readouterr().out.startswith("the red ")
