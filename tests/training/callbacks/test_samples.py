"""Scores of a round, and the translations that are shown."""

import json

import pytest

from tests.training.callbacks.conftest import (
    PAIRS,
    FakeTranslator,
    after_round,
    scored,
)
from training.callbacks.samples import Translations
from training.scoring import score


def test_a_round_is_scored_as_sacrebleu_scores_it():
    scores = scored(missed=["source 2", "source 5"])
    logs = after_round(scores)
    references = [pair.target for pair in PAIRS]
    expected = score(FakeTranslator(scores.translator.missed).translate(scores.sources), references)
    assert (logs["val_bleu"], logs["val_chrf"]) == (expected.bleu, expected.chrf)
    assert 0 < expected.bleu < 100


@pytest.mark.parametrize(
    ("count", "rows"),
    [(0, []), (1, [0]), (2, [0, 3]), (7, range(7)), (20, range(7))],
)
def test_samples_are_spread_over_the_text_and_none_comes_twice(run, count, rows):
    scores = scored()
    after_round(scores)
    samples = Translations(scores, run, count)
    after_round(samples)
    expected = [(PAIRS[row].source, PAIRS[row].target, PAIRS[row].target) for row in rows]
    assert samples.latest == expected


def test_samples_go_on_with_the_rounds_of_a_checkpoint(run):
    scores = scored()
    after_round(scores)
    samples = Translations(scores, run, 1)
    after_round(samples, update=20)
    later = Translations(scores, run, 1)
    later.restore(json.loads(json.dumps(samples.state())))
    after_round(later, update=40)
    assert [round_[0] for round_ in later.history] == [20, 40]
    others = Translations(scores, run, 2)
    others.restore(samples.state())
    assert others.history == [], "other sentences have no history"
    assert later.history[0] == (20, 12.5, [PAIRS[0].target])


def test_the_samples_file_tells_how_translations_change(run):
    scores = scored(missed=["source 0"])
    samples = Translations(scores, run, 1)
    after_round(scores)
    after_round(samples, update=20, val_bleu=12.5)
    scores.translator.missed = ()
    after_round(scores)
    after_round(samples, update=40, val_bleu=100.0)
    assert run.samples.read_text("utf-8").split("\n") == [
        "update 20  BLEU 12.50",
        "  source       source 0",
        "  translation  missed",
        f"  reference    {PAIRS[0].target}",
        "update 40  BLEU 100.00",
        "  source       source 0",
        f"  translation  {PAIRS[0].target}",
        f"  reference    {PAIRS[0].target}",
        "",
    ]
