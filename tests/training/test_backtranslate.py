import gzip

import pytest

from kformer.text import WordTokenizer
from kformer.translator import Translator
from training.backtranslate import main
from training.data.corpus import read_pairs

LINES = ["a b", "", "c  a b", " \t", "b"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, save_run):
    return save_run(tmp_path_factory.mktemp("back") / "run", WordTokenizer.learn(["a b c"])).path


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    return tmp_path / "text.gz"


def test_pairs_are_the_tagged_translation_and_the_text(run, text, tmp_path, capsys):
    assert main([str(run), str(text), "--out", str(tmp_path / "back.tsv"), "--max-length=9"]) == 0
    kept = ["a b", "c a b", "b"]
    expected = Translator.from_run(run, max_length=9).translate(kept)
    pairs = list(read_pairs(str(tmp_path / "back.tsv")))
    assert [pair.target for pair in pairs] == kept
    assert [pair.source for pair in pairs] == [f"<BT> {source}" for source in expected]
    assert "3 pairs; 2 lines without text" in capsys.readouterr().out


def test_several_samples_of_a_text_are_pairs_each_and_the_tag_can_go(run, text, tmp_path):
    out = tmp_path / "back.tsv"
    options = ["--sample", "--n-best=2", "--tag=", "--max-length=9", "--seed=3"]
    assert main([str(run), str(text), "--out", str(out), *options]) == 0
    first = out.read_text()
    pairs = list(read_pairs(str(out)))
    assert 1 <= len(pairs) <= 6 and not any("<BT>" in pair.source for pair in pairs)
    assert main([str(run), str(text), "--out", str(out), *options, "--overwrite"]) == 0
    assert out.read_text() == first


@pytest.mark.parametrize(
    ("file", "out", "options", "message"),
    [
        ("none.txt", "b.tsv", [], "none.txt: no such file"),
        ("text.gz", "b.txt", [], "must end in .tsv"),
        ("text.gz", "there.tsv", [], "there.tsv: exists"),
        ("text.gz", "b.tsv", ["--beam-size=0"], "beam"),
    ],
)
def test_what_cannot_be_made_is_told_in_one_line(
    run, text, tmp_path, capsys, file, out, options, message
):
    (tmp_path / "there.tsv").write_text("mine")
    before = sorted(tmp_path.iterdir())
    assert main([str(run), str(tmp_path / file), "--out", str(tmp_path / out), *options]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "there.tsv").read_text() == "mine"
