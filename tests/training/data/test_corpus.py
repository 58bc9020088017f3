import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from training.config import CleaningConfig, DataConfig
from training.data.cleaning import source_hash
from training.data.corpus import (
    CleanCorpus,
    clean_corpus,
    clean_pairs,
    find_sources,
    read_pairs,
)
from training.data.reading.sources import embedded_corpora
from training.data.report import Report
from training.data.rows import Pair
from training.data.splits import PARTS

PAIRS = [Pair(f"source {i}", f"target {i}") for i in range(300)]
NAME = "libreoffice-help.en-de"


@pytest.fixture
def file(tmp_path):
    def file(rows, name="train.tsv"):
        path = tmp_path / name
        path.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
        return str(path)

    return file


@pytest.fixture
def clean(tmp_path):
    """Cleans a corpus into a new folder."""

    def clean(train, valid=None, test=None, strict=False, **rules):
        folder = tmp_path / f"clean {len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        sources = find_sources(DataConfig(train=train, valid=valid, test=test))
        return clean_corpus(sources, CleaningConfig(**rules), strict, folder)

    return clean


def parts(corpus):
    return {part: list(corpus.pairs(part)) for part in PARTS}


def test_without_other_text_three_disjoint_parts_are_cut_from_the_training_text(file, clean):
    cut = parts(clean(file(PAIRS)))
    assert sorted(cut["train"] + cut["valid"] + cut["test"]) == sorted(PAIRS)
    assert all(cut.values())
    assert len(cut["train"]) > 250


def test_pairs_that_share_a_source_stay_in_one_part(file, clean):
    twins = [Pair(pair.source.upper(), f"{pair.target} again") for pair in PAIRS]
    cut = parts(clean(file(PAIRS + twins)))
    sources = [{source_hash(pair.source) for pair in pairs} for pairs in cut.values()]
    assert sum(map(len, sources)) == len(set.union(*sources)) == len(PAIRS)


@pytest.mark.parametrize(("given_part", "cut"), [("valid", "test"), ("test", "valid")])
def test_what_is_given_is_not_held_out_of_training_as_well(file, clean, given_part, cut):
    train = file(PAIRS)
    whole = parts(clean(train))
    own = [Pair("my own", "mein eigenes")]
    got = parts(clean(train, **{given_part: file(own, "own.tsv")}))
    assert got[given_part] == own
    assert got[cut] == whole[cut]
    assert sorted(got["train"]) == sorted(whole["train"] + whole[given_part])


def test_with_all_three_given_all_of_the_training_text_is_trained_on(file, clean):
    own = {part: [Pair(part, f"{part}!")] for part in ("valid", "test")}
    given_files = {part: file(pairs, f"{part}.tsv") for part, pairs in own.items()}
    assert parts(clean(file(PAIRS), **given_files)) == {"train": PAIRS, **own}


def test_an_embedded_corpus_brings_its_three_parts(clean):
    corpus = clean(NAME)
    for part in PARTS:
        assert list(corpus.pairs(part)) == list(read_pairs(f"{NAME}/{part}"))
        assert corpus.report.pairs[part] == len(list(corpus.pairs(part)))


def test_cleaning_by_default_leaves_the_embedded_corpus_as_it_is():
    for name, path in embedded_corpora().items():
        rows = path.read_text("utf-8").removesuffix("\n").split("\n")
        assert [f"{s}\t{t}" for s, t in clean_pairs(read_pairs(name))] == rows


def test_an_embedded_corpus_may_be_tested_on_other_text(file, clean):
    corpus = clean(NAME, test=file(PAIRS))
    assert list(corpus.pairs("test")) == PAIRS
    assert list(corpus.pairs("valid")) == list(read_pairs(f"{NAME}/valid"))


def test_several_corpora_are_read_one_after_another_and_counted_each(file, clean):
    first, second = file(PAIRS[:100], "a.tsv"), file([*PAIRS[90:], ("", "x")], "b.tsv")
    held = file([("held", "out")], "held.tsv")
    corpus = clean([first, second], valid=held, test=held)
    assert list(corpus.pairs("train")) == PAIRS
    report = corpus.report
    assert report.corpus_pairs == [100, 200]
    assert report.corpora[first] == Report(100)
    dropped = report.corpora[second].dropped
    assert {reason: dropped[reason].count for reason in dropped} == {
        "repeated": 10, "with an empty side": 1,
    }  # fmt: skip
    assert dropped["repeated"].examples[0].place == f"{second}, line 1"


def test_pairs_of_each_corpus_are_counted_after_some_were_held_out(file, clean):
    corpus = clean([file(PAIRS[:100], "a.tsv"), file(PAIRS[100:], "b.tsv")])
    train = list(corpus.pairs("train"))
    of_first = sum(int(pair.source.split()[1]) < 100 for pair in train)
    assert corpus.report.corpus_pairs == [of_first, len(train) - of_first]
    assert sum(corpus.report.pairs.values()) == 300


@pytest.mark.parametrize(
    ("duplicates", "kept"),
    [
        ("none", ["a 1", "a 2", "a 1", "b 1", "A 1"]),
        ("pair", ["a 1", "a 2", "b 1", "A 1"]),
        ("source", ["a 1", "b 1"]),
    ],
)
def test_what_of_a_repetition_is_left_out_is_chosen(duplicates, kept):
    pairs = [("a", "1"), ("a", "2"), ("a", "1"), ("b", "1"), ("A", "1")]
    rules = CleaningConfig(max_symbols=None, duplicates=duplicates)
    report = Report()
    assert [" ".join(pair) for pair in clean_pairs(pairs, rules, report)] == kept
    assert report.seen == 5 and report.kept == len(kept)


def test_rules_are_for_training_text_only(file, clean):
    held = [("same", "same"), ("same", "same"), ("x" * 200, "y")]
    rows = [*PAIRS, ("equal", "equal")]
    corpus = clean(
        file(rows), valid=file(held, "v.tsv"), test=file(held, "t.tsv"), max_characters=100
    )
    assert parts(corpus) == {"train": PAIRS, "valid": held, "test": held}


@pytest.mark.parametrize("left_out", [True, False])
def test_held_out_sentences_that_occur_in_training_are_counted(file, clean, left_out):
    valid = file([("Source 5", "anders"), ("only here", "nur hier")], "v.tsv")
    test = file([("source 7", "target 7"), ("source  5", "x"), ("source 7", "y")], "t.tsv")
    corpus = clean(file(PAIRS), valid, test, held_out=left_out)
    report = corpus.report
    assert report.in_train == {"valid": 1, "test": 3}
    assert report.in_train_examples == {
        "valid": ["Source 5"],
        "test": ["source 7", "source  5", "source 7"],
    }
    sources = {pair.source for pair in corpus.pairs("train")}
    assert ("source 5" in sources, "source 7" in sources) == (not left_out, not left_out)
    assert len(sources) == (298 if left_out else 300)


def test_test_sentences_that_occur_in_validation_text_are_counted(file, clean):
    valid = file([("One", "Eins"), ("two", "zwei")], "v.tsv")
    test = file([("one", "1"), ("ONE", "2"), ("three", "3")], "t.tsv")
    assert clean(file(PAIRS), valid, test).report.test_in_valid == 2
    assert clean(file(PAIRS), valid).report.test_in_valid == 0


@pytest.mark.parametrize("content", ['{"en": "a", "de": "b"}\n', "[]\n"])
def test_rows_without_the_keys_asked_for_are_told_with_the_keys_of_the_option(
    file, clean, tmp_path, content
):
    (tmp_path / "rows.jsonl").write_text(content * 3)
    with pytest.raises(InputError, match="3 malformed; name the sides: data.source_key"):
        clean(str(tmp_path / "rows.jsonl"))


def test_a_growing_corpus_keeps_what_is_held_out(file, clean):
    small, large = parts(clean(file(PAIRS[:150]))), parts(clean(file(PAIRS)))
    for part in ("valid", "test"):
        assert set(small[part]) <= set(large[part])


def test_strict_refuses_a_row_of_any_part_by_file_and_line(file, clean):
    broken = file([("a", "b"), ("no tab",)], "broken.tsv")
    good = file(PAIRS)
    for given_files in ({"train": broken}, {"train": good, "valid": broken}):
        with pytest.raises(InputError, match=r"broken.tsv, line 2: malformed \('no tab'\)"):
            clean(**given_files, strict=True)
    assert clean(good, valid=broken).report.given["valid"].dropped["malformed"].count == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "train.tsv: is empty"),
        ([("one",), ("", "x")], "train.tsv: holds no usable pair: 2 rows, 0 pairs kept"),
    ],
)
def test_text_without_a_pair_is_refused(file, clean, rows, message):
    with pytest.raises(InputError, match=message):
        clean(file(rows))


def test_training_text_that_is_all_held_out_is_refused(file, clean):
    path = file(PAIRS)
    with pytest.raises(InputError, match="no training pair is left.*300 also in validation"):
        clean(path, valid=path)


def test_every_source_is_found_before_anything_is_read(file):
    with pytest.raises(InputError, match="missing.tsv"):
        find_sources(DataConfig(train=[file(PAIRS), "missing.tsv"]))


def test_a_corpus_under_two_names_is_refused():
    with pytest.raises(InputError, match="each corpus once"):
        find_sources(DataConfig(train=[NAME, f"{NAME}/train"]))


def test_the_report_is_kept_beside_the_text(file, clean):
    corpus = clean(file([*PAIRS, ("x",)]))
    assert CleanCorpus(corpus.folder).report == corpus.report
    assert json.loads((corpus.folder / "report.json").read_text())["pairs"] == corpus.report.pairs
    assert sorted(path.name for path in corpus.folder.iterdir()) == [
        "report.json", "test.tsv", "train.tsv", "valid.tsv",
    ]  # fmt: skip


def test_a_text_may_look_like_anything(file, clean):
    rows = [("=\u00bb \"q'", "»\tthird"), ("#", "##x"), ("a\x0bb\x85c", "\u2028d e\r"), ("-", "_")]
    held = file([("held", "out")], "h.tsv")
    corpus = clean(file(rows), held, held, max_symbols=None)
    assert list(corpus.pairs("train")) == [
        ("=\u00bb \"q'", "»"), ("#", "##x"), ("a b c", "d e"), ("-", "_"),
    ]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.binary(max_size=20) | st.sampled_from([b"a\tb", b"a\tb\tc", b"\t", b"\xef\xbb\xbf1\t2"]),
        max_size=12,
    )
)
def test_rows_in_are_pairs_kept_and_dropped_for_any_bytes(tmp_path, lines):
    path = tmp_path / "any.tsv"
    content = b"\n".join([*lines, b"one\teins", b"two\tzwei", b"three\tdrei"])
    path.write_bytes(content)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    sources = find_sources(DataConfig(train=str(path)))
    try:
        report = clean_corpus(sources, CleaningConfig(max_symbols=None), False, folder).report
    except InputError as error:
        assert "any.tsv" in str(error) and "\n" not in str(error)
        return
    counts = report.corpora[str(path)]
    if not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        assert counts.seen == content.count(b"\n") + 1
    written = sum(len((folder / f"{part}.tsv").read_bytes().splitlines()) for part in PARTS)
    assert counts.kept == written == sum(report.pairs.values())


def test_an_iterable_of_pairs_is_cleaned_as_it_comes():
    report = Report()

    def endless():
        number = 0
        while True:
            number += 1
            yield {"source": f"s\x00 {number // 2}", "target": f"t {number // 2}"}

    pairs = clean_pairs(endless(), report=report)
    assert [next(pairs) for _ in range(2)] == [Pair("s 0", "t 0"), Pair("s 1", "t 1")]
    assert report.dropped["repeated"].count >= 1
    with pytest.raises(InputError, match="index 1"):
        list(clean_pairs([("a", "b"), ("c",)]))


def test_a_locale_without_utf8_makes_no_difference(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("grün\tвесна\n", "utf-8")
    code = (
        "import sys; from training.data.corpus import read_pairs;"
        "print(ascii(list(read_pairs(sys.argv[1]))))"
    )
    for locale in ("C", "C.UTF-8"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True, text=True, env={**os.environ, "LC_ALL": locale}, check=True,
        )  # fmt: skip
        assert ascii("весна") in run.stdout and ascii("grün") in run.stdout
