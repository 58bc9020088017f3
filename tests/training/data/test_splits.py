import pytest

from training.data.corpus import CorpusReport, embedded_corpora, read_pairs
from training.data.rows import Pair
from training.data.splits import Corpus

PAIRS = [Pair(f"source {i}", f"target {i}") for i in range(300)]


@pytest.fixture
def file(tmp_path):
    def file(pairs, name="train.tsv"):
        path = tmp_path / name
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        return str(path)

    return file


def parts(corpus):
    return {part: list(corpus.pairs(part)) for part in ("train", "valid", "test")}


def test_without_other_text_three_disjoint_parts_are_cut_from_the_training_text(file):
    cut = parts(Corpus(file(PAIRS)))
    assert sorted(cut["train"] + cut["valid"] + cut["test"]) == sorted(PAIRS)
    assert all(cut.values())
    assert len(cut["train"]) > 250


def test_pairs_that_share_a_source_stay_in_one_part(file):
    twins = [Pair(pair.source, f"{pair.target} again") for pair in PAIRS]
    cut = parts(Corpus(file(PAIRS + twins)))
    sources = [{pair.source for pair in pairs} for pairs in cut.values()]
    assert sum(map(len, sources)) == len(set.union(*sources)) == len(PAIRS)


@pytest.mark.parametrize(("given", "cut"), [("valid", "test"), ("test", "valid")])
def test_what_is_given_is_not_held_out_of_training_as_well(file, given, cut):
    train = file(PAIRS)
    whole = parts(Corpus(train))
    own = [Pair("my own", "mein eigenes")]
    got = parts(Corpus(train, **{given: file(own, "own.tsv")}))
    assert got[given] == own
    assert got[cut] == whole[cut]
    assert sorted(got["train"]) == sorted(whole["train"] + whole[given])


def test_with_all_three_given_all_of_the_training_text_is_trained_on(file):
    own = {part: [Pair(part, part)] for part in ("valid", "test")}
    corpus = Corpus(file(PAIRS), *(file(own[part], f"{part}.tsv") for part in own))
    assert parts(corpus) == {"train": PAIRS, **own}


def test_an_embedded_corpus_brings_its_three_parts():
    name = next(iter(embedded_corpora())).rpartition("/")[0]
    corpus = Corpus(name)
    for part in ("train", "valid", "test"):
        assert list(corpus.pairs(part)) == list(read_pairs(f"{name}/{part}"))


def test_an_embedded_corpus_may_be_tested_on_other_text(file):
    name = next(iter(embedded_corpora())).rpartition("/")[0]
    corpus = Corpus(name, test=file(PAIRS))
    assert list(corpus.pairs("test")) == PAIRS
    assert list(corpus.pairs("valid")) == list(read_pairs(f"{name}/valid"))
    assert list(corpus.pairs("train")) == list(read_pairs(f"{name}/train"))


def test_a_part_can_be_read_again_and_again(file):
    corpus = Corpus(file(PAIRS))
    assert parts(corpus) == parts(corpus)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_the_report_of_a_part_counts_that_part(file, part):
    report = CorpusReport()
    pairs = list(Corpus(file(PAIRS)).pairs(part, report))
    assert report.kept == len(pairs)
