"""What is reported of finished runs."""

import json
import re
import shutil

import numpy as np
import pytest
import sacrebleu

from kformer.errors import InputError
from tests.training.compare.conftest import PAIRS, TEXT
from training.compare import pictures
from training.compare.report import write_report
from training.compare.results import collect, spread
from training.compare.significance import paired_bootstrap
from training.compare.work import work

REFERENCES = [target for _, target in PAIRS]
SEARCHES = TEXT + "searches: {greedy: {}, beam 4: {beam_size: 4}}\nlengths: [6, 10]\n"


def texts_of(run, search):
    path = run.folder.path / "translations" / f"{search}.txt"
    return path.read_text("utf-8").splitlines()


def cells(table):
    """The rows of a Markdown table without its header."""
    rows = [line.strip("| ").split(" | ") for line in table.strip().split("\n")]
    return {row[0]: row[1:] for row in rows[2:]}


def tables(report):
    return [cells(found) for found in re.findall(r"(?:^\|.*\n)+", report, re.MULTILINE)]


@pytest.fixture
def reported(commands, planned, tmp_path):
    """Makes all runs, and gives the experiment, the runs, report.md and results.json."""

    def reported(text=TEXT):
        experiment, runs = planned(text)
        work(runs, 0)
        write_report(experiment, runs, tmp_path / "out")
        content = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
        return experiment, runs, (tmp_path / "out" / "report.md").read_text("utf-8"), content

    return reported


def test_figures_are_means_and_standard_deviations_over_the_seeds(reported):
    _, runs, report, content = reported()
    for name, cells in tables(report)[0].items():
        of_it = [run for run in runs if run.variant.name == name]
        bleu = [sacrebleu.corpus_bleu(texts_of(run, "test"), [REFERENCES]).score for run in of_it]
        chrf = [sacrebleu.corpus_chrf(texts_of(run, "test"), [REFERENCES]).score for run in of_it]
        assert cells[0] == f"{np.mean(bleu):.2f} ± {np.std(bleu, ddof=1):.2f}"
        assert cells[2] == f"{np.mean(chrf):.2f} ± {np.std(chrf, ddof=1):.2f}"
        # Of the best rounds, the second ones: 14 and 24.
        assert cells[3] == f"19.00 ± {np.std([14, 24], ddof=1):.2f}"
        assert cells[4] == "1,234"
        assert cells[5] == f"{2 / (1 / 2000 + 1 / 4000):,.0f} ± 0"
        assert cells[6:] == ["2.0 ± 0.0", "1.50 ± 0.00"]
        (row,) = (row for row in content["rows"] if row["name"] == name)
        assert row["figures"]["bleu"] == {
            "mean": pytest.approx(np.mean(bleu)), "spread": pytest.approx(np.std(bleu, ddof=1)),
        }  # fmt: skip
        assert [run["bleu"] for run in row["runs"]] == pytest.approx(bleu)


def test_each_run_is_tested_against_the_first_row_with_its_seed(reported):
    _, runs, report, content = reported(SEARCHES)
    table = tables(report)[0]
    assert list(table) == ["wide, greedy", "wide, beam 4", "narrow, greedy", "narrow, beam 4"]
    assert table["wide, greedy"][1] == ""
    wide, narrow = (
        [run for run in runs if run.variant.name == name] for name in ("wide", "narrow")
    )
    expected = [
        paired_bootstrap(texts_of(first, "greedy"), [texts_of(run, "beam-4")], REFERENCES)[0][0]
        for first, run in zip(wide, narrow, strict=True)
    ]
    assert table["narrow, beam 4"][1] == ", ".join(f"{value:.3f}" for value in expected)
    assert [run["p_value"] for run in content["rows"][3]["runs"]] == expected
    assert "bs:1000|seed:12345" in report and "bs:1000" in content["signatures"]["paired bootstrap"]


def test_bleu_by_length_has_the_numbers_of_sentences(reported):
    _, runs, report, content = reported(SEARCHES)
    assert content["sentences"] == {"1-6": 1, "7-10": 1, "11+": 2}
    assert "| words | 1-6 (1) | 7-10 (1) | 11+ (2) |" in report
    table = tables(report)[1]
    for run_name, row in (("wide", "wide, greedy"), ("narrow", "narrow, greedy")):
        of_it = [run for run in runs if run.variant.name == run_name]
        bleu = [
            sacrebleu.corpus_bleu(
                [texts_of(run, "greedy")[row] for row in (1, 2)],
                [[REFERENCES[row] for row in (1, 2)]],
            ).score
            for run in of_it
        ]
        assert table[row][2] == f"{np.mean(bleu):.2f} ± {np.std(bleu, ddof=1):.2f}"


def test_a_report_says_how_each_variant_can_be_trained(reported):
    _, _, report, _ = reported()
    assert "# Widths\n\nDoes it matter?\n" in report
    assert (
        "python -m training.run tiny --train.updates=4 --train.validate_every=2 "
        "--train.warmup_updates=1\n" in report
    )
    assert tables(report)[2] == {"wide": ["none"], "narrow": ["`--model.d_model=16`"]}
    assert "CPU, 2 cores" in report and "tok:13a" in report


def test_a_report_is_made_again_from_what_is_there_and_is_the_same(reported, commands, planned):
    _, runs, report, _ = reported(SEARCHES)
    folder = runs[0].folder.path.parent
    before = {path: path.read_bytes() for path in folder.glob("*.*")}
    assert {"report.md", "results.json"} <= {path.name for path in before}
    commands.trained.clear()
    commands.translated.clear()
    for path in before:
        path.unlink()
    write_report(*planned(SEARCHES), folder)
    assert {path: path.read_bytes() for path in folder.glob("*.*")} == before
    assert commands.trained == commands.translated == []


def test_runs_that_are_missing_are_named_and_the_others_reported(reported):
    experiment, runs, _, _ = reported()
    folder = runs[0].folder.path.parent
    shutil.rmtree(runs[1].folder.path)
    shutil.rmtree(runs[2].folder.path)
    write_report(experiment, runs, folder)
    report = (folder / "report.md").read_text("utf-8")
    assert "Not finished, so not in these figures: narrow-1, wide-2." in report
    table = tables(report)[0]
    assert "±" not in "".join(table["wide"] + table["narrow"])
    # The first row's run with the same seed is missing.
    assert table["narrow"][1] == "-"
    shutil.rmtree(runs[3].folder.path)
    write_report(experiment, runs, folder)
    assert set(tables((folder / "report.md").read_text("utf-8"))[0]["narrow"]) == {"-"}
    shutil.rmtree(runs[0].folder.path)
    with pytest.raises(InputError, match="no run is finished and translated yet"):
        collect(experiment, runs)


def test_pictures_are_drawn_and_named_in_the_report(reported, tmp_path):
    pytest.importorskip("matplotlib")
    _, _, report, _ = reported()
    for name in (pictures.CURVES, pictures.LENGTHS):
        assert f"]({name})" in report
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_are_no_pictures_and_it_says_so(
    reported, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    _, _, report, _ = reported()
    assert "![" not in report and not list((tmp_path / "out").glob("*.png"))
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_one_value_has_no_spread():
    assert spread([3.0]) == (3.0, None)
    assert spread([1.0, 2.0, 4.0]) == pytest.approx((7 / 3, np.std([1, 2, 4], ddof=1)))


def test_a_run_that_diverged_does_not_keep_the_others_from_being_reported(reported):
    experiment, runs, _, _ = reported()
    folder, metrics = runs[0].folder.path.parent, runs[0].folder.metrics
    rounds = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    lines = [json.dumps(figures | {"val_perplexity": None}) for figures in rounds]
    metrics.write_text("\n".join(lines) + "\n", "utf-8")
    write_report(experiment, runs, folder)
    (table, *_) = tables((folder / "report.md").read_text("utf-8"))
    assert "inf ± nan" in table["wide"] and "inf" not in "".join(table["narrow"])

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    rows = json.loads((folder / "results.json").read_text("utf-8"), parse_constant=refuse)["rows"]
    assert rows[0]["runs"][0]["perplexity"] is None


def test_what_was_trained_and_not_translated_is_named(reported):
    experiment, runs, _, _ = reported()
    folder = runs[0].folder.path.parent
    shutil.rmtree(runs[1].folder.path / "translations")
    write_report(experiment, runs, folder)
    report = (folder / "report.md").read_text("utf-8")
    assert f"Not translated, so not in these figures: {runs[1].name}." in report
