"""Lines of one language, from the file to batches."""

import gzip
import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from kformer.errors import InputError
from kformer.ids import END_ID, START_ID
from training.config import CleaningConfig, Config, DataConfig, ModelConfig, TokenizerConfig
from training.data.__main__ import main
from training.data.batches import assemble, evaluation_batches
from training.data.cleaning import Chunk, Cleaner, source_hash
from training.data.corpus import clean_corpus, find_sources, read_lines, read_pairs
from training.data.prepare import prepare_text
from training.data.rows import Pair, Row
from training.data.splits import Split
from training.data.summary import explained, summary
from training.data.tokenising import build_store

WORDS = "the a old grey small house tree sea seal eats sees grows by and slowly here".split()


def text(count=400, seed=3):
    rng = np.random.default_rng(seed)
    lines = (" ".join(rng.choice(WORDS, rng.integers(4, 9))) for _ in range(count))
    return [f"{line.capitalize()}." for line in lines]


@pytest.fixture
def write(tmp_path):
    def write(name, lines):
        content = "".join(f"{line}\n" for line in lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(tmp_path / name)

    return write


@pytest.fixture
def config(tmp_path, write):
    return Config(
        data=DataConfig(train=write("text.txt", text()), cache=str(tmp_path / "cache")),
        tokenizer=TokenizerConfig(vocab_size=310),
        model=ModelConfig(kind="language_model"),
    )


def test_lines_are_targets_without_a_source(write):
    one, two = write("a.txt", ["One line.", "", "Two\tcells"]), write("b.txt.gz", ["Three"])
    sources = find_sources(DataConfig(train=[one, two]), lines_too=True)
    rows = [tuple(row) for source in sources.train for part in source.parts for row in part.rows()]
    assert rows == [(1, "", "One line."), (2, "", ""), (3, "", "Two\tcells"), (1, "", "Three")]
    assert sources.of_lines


def test_two_plain_files_are_still_two_sides(write, tmp_path):
    spec = f"{write('a.txt', ['One.'])},{write('b.txt', ['Eins.'])}"
    sources = find_sources(DataConfig(train=spec), lines_too=True)
    assert not sources.of_lines
    assert list(read_pairs(spec)) == [Pair("One.", "Eins.")]


def test_other_models_refuse_lines_in_one_line(write):
    spec = write("a.txt", ["One."])
    with pytest.raises(InputError, match=r"a\.txt: holds lines of one language \(\.txt\), which"):
        find_sources(DataConfig(train=spec))
    with pytest.raises(InputError, match="name tab-separated text .tsv"):
        read_pairs(spec)


def test_lines_and_pairs_are_not_mixed(write):
    lines, pairs = write("a.txt", ["One."]), write("b.tsv", ["One.\tEins."])
    for data in (DataConfig(train=[lines, pairs]), DataConfig(train=pairs, valid=lines)):
        with pytest.raises(InputError, match=r"lines of one language \(.txt\) and pairs cannot"):
            find_sources(data, lines_too=True)
    with pytest.raises(InputError, match="give lines of one language"):
        read_lines(pairs)


def cleaned(lines, **rules):
    rows = [Row(number, "", line) for number, line in enumerate(lines, 1)]
    return Cleaner(CleaningConfig(**rules), of_lines=True)()(Chunk("text.txt, line", rows))


def test_rules_about_the_text_apply_and_those_about_sides_do_not():
    lines = ["A house of 8 and {name}", "...!!!", "Дом у моря", "x" * 30, " \t", "Yes"]
    left = cleaned(
        lines, max_characters=25, target_script="Latin", source_script="Cyrillic", numbers=True,
        placeholders=True, max_length_ratio=1.0, identical=True,
    )  # fmt: skip
    assert left.lines == [b"\tA house of 8 and {name}\n", b"\tYes\n"]
    assert {reason: dropped.count for reason, dropped in left.report.dropped.items()} == {
        "over 50% punctuation and digits": 1,
        "with a target not in Latin": 1,
        "too long (over 25 characters)": 1,
        "empty": 1,
    }
    assert str(left.report.dropped["empty"].examples[0]) == "text.txt, line 5: ' \\t'"


def test_an_empty_line_is_refused_where_that_is_asked_for():
    chunk = Chunk("text.txt, line", [Row(7, "", "")])
    with pytest.raises(InputError, match="text.txt, line 7: empty"):
        Cleaner(CleaningConfig(), strict=True, of_lines=True)()(chunk)


def test_repetitions_go_and_parts_are_cut_by_the_hash_of_the_line(write, tmp_path):
    lines = text()
    sources = find_sources(DataConfig(train=write("a.txt", [*lines, *lines[:50]])), lines_too=True)
    corpus = clean_corpus(sources, CleaningConfig(), False, tmp_path)
    kept = list(dict.fromkeys(lines))
    hashes = np.array([source_hash(line) for line in kept], np.uint64)
    split = Split.of(hashes)
    for part in ("train", "valid", "test"):
        own = [line for line, there in zip(kept, split.select(part, hashes), strict=True) if there]
        assert [pair.target for pair in corpus.pairs(part)] == own and own
        assert {pair.source for pair in corpus.pairs(part)} == {""}


def test_held_out_lines_are_left_out_of_training(write, tmp_path):
    lines = [*dict.fromkeys(text())]
    data = DataConfig(
        train=write("a.txt", lines), valid=write("v.txt", lines[:3]),
        test=write("t.txt", [lines[3].upper()]),
    )  # fmt: skip
    corpus = clean_corpus(find_sources(data, lines_too=True), CleaningConfig(), False, tmp_path)
    assert [pair.target for pair in corpus.pairs("train")] == lines[4:]
    assert corpus.report.in_train == {"valid": 3, "test": 1}
    assert corpus.report.in_train_examples["valid"] == lines[:3]


def test_a_store_keeps_empty_sources_and_drops_texts_without_tokens(tmp_path, encoders):
    pairs = [Pair("", "5 6"), Pair("", "7 8 9 9"), Pair("", " "), Pair("", "4")]
    store = build_store(pairs, encoders(), tmp_path / "store", max_length=3)
    assert store.meta.of_lines and store.meta.target_tokens == 3
    assert [store.pair(i)[1].tolist() for i in range(2)] == [[5, 6], [4]]
    assert store.source_lengths.tolist() == [1, 1]
    assert {reason: d.count for reason, d in store.meta.report.dropped.items()} == {
        "with a side of no tokens": 1,
        "too long (over 3 tokens)": 1,
    }


def test_batches_of_lines_have_the_end_token_for_a_source(tmp_path, encoders):
    pairs = [Pair("", "5 6"), Pair("", "4")]
    store = build_store(pairs, encoders(), tmp_path / "store", max_length=3)
    (source, target), labels = assemble(store, np.arange(2))
    np.testing.assert_array_equal(source, [[END_ID, 0], [END_ID, 0]])
    np.testing.assert_array_equal(target, [[START_ID, 5, 6, 0], [START_ID, 4, 0, 0]])
    np.testing.assert_array_equal(labels, [[5, 6, END_ID, 0], [4, END_ID, 0, 0]])
    assert len(list(evaluation_batches(store, max_tokens=40))) == 1


def test_a_vocabulary_is_learned_and_a_corpus_told_by_its_lines(config):
    prepared = prepare_text(config)
    assert [path.name for path in prepared.tokenizer.iterdir()] == ["joint.model"]
    meta = prepared.train.meta
    assert meta.of_lines and prepared.valid.meta.of_lines
    short, long = summary(config, prepared), explained(config, prepared)
    assert f"{meta.pairs} lines, {meta.target_tokens:,} tokens" in short
    for told in (short, long):
        assert "lines kept" in told and "pairs" not in told
        assert "source" not in told and "text" in told
    assert json.loads((prepared.folder / "train" / "meta.json").read_text())["source_tokens"] == 0


def test_learned_positions_have_to_hold_source_and_target_together(config, write):
    def with_positions(config, length):
        model = replace(config.model, positions="learned", max_length=length)
        return replace(config, model=model, data=replace(config.data, max_length=20))

    longest = int(prepare_text(with_positions(config, 99)).train.target_lengths.max()) + 1
    prepare_text(with_positions(config, max(longest, 21)))
    pairs = replace(
        config, data=replace(config.data, train=write("p.tsv", [f"{t}\t{t[::-1]}" for t in text()]))
    )
    with pytest.raises(InputError, match=r"of source and target together.*Received: 21"):
        prepare_text(with_positions(pairs, 21))


def test_a_best_by_translations_is_refused_for_lines(config):
    config = replace(config, train=replace(config.train, best_by="bleu"))
    with pytest.raises(InputError, match="train.best_by bleu: lines of one language have no"):
        prepare_text(config)


def test_the_command_writes_the_cleaned_lines_as_they_can_be_read_again(write, tmp_path, capsys):
    spec = write("text.txt", [*text(), "", "!!!"])
    assert main(
        ["tiny", "--model.kind=language_model", f"--data.train={spec}", "--tokenizer.kind=word",
         "--out", str(tmp_path / "out")]
    ) == 0  # fmt: skip
    assert "train.txt  valid.txt  test.txt  report.txt" in capsys.readouterr().out
    written = [line for part in ("train", "valid", "test")
               for line in (tmp_path / "out" / f"{part}.txt").read_text().splitlines()]  # fmt: skip
    assert sorted(written) == sorted(set(text()))
    assert (tmp_path / "out" / "lengths.png").is_file() or find_spec("matplotlib") is None
