import re

import pytest

from benchmarks.decode import main
from kformer.text import WordTokenizer

WORDS = "one two three four five six seven eight nine ten".split()


@pytest.mark.slow
def test_decoding_is_measured_in_every_way(tmp_path, save_run, capsys):
    texts = {"test": [f"{word} two" for word in WORDS]}
    run = save_run(tmp_path / "run", WordTokenizer.learn([" ".join(WORDS)]), texts)
    assert main([str(run.path), "--rounds", "1", "--sentences", "9"]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^(.*\S)  +([\d.,]+) +([\d,]+) +([\d.]+)$", out, re.MULTILINE)
    assert [name for name, *_ in rows] == [
        f"{search}, {batch}"
        for search in ("greedy", "beam 4")
        for batch in ("1", "32", "token budget")
    ] + ["no cache, greedy, 32"] + [
        f"CTranslate2, {search}, {batch}" for search in ("greedy", "beam 4") for batch in (1, 32)
    ]
    assert all(float(rate) > 0 for _, rate, *_ in rows)
    assert re.search(r"cache: [\d.]+ times as fast", out)
    assert re.search(r"output twice as long: [\d.]+ times", out)


def test_a_run_that_is_not_there_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "none: no such run folder" in capsys.readouterr().err
