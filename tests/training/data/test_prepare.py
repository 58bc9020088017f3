import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from kformer.errors import InputError
from kformer.text import Tokenizers
from training.config import CleaningConfig, Config, DataConfig, TokenizerConfig
from training.data.corpus import clean_corpus
from training.data.prepare import prepare_text
from training.data.store import TokenStore
from training.data.summary import explained, summary

WORDS = "the a old grey small house tree sea seal eats sees grows by and slowly here".split()


def sentence(rng):
    return " ".join(rng.choice(WORDS, rng.integers(3, 9))).capitalize() + "."


@pytest.fixture(scope="module")
def text():
    rng = np.random.default_rng(3)
    return "".join(f"{sentence(rng)}\t{sentence(rng)}\n" for _ in range(400))


@pytest.fixture
def config(tmp_path, text):
    (tmp_path / "train.tsv").write_text(text)
    return Config(
        data=DataConfig(train=str(tmp_path / "train.tsv"), cache=str(tmp_path / "cache")),
        tokenizer=TokenizerConfig(vocab_size=310),
    )


def change(config, **sections):
    return replace(
        config,
        **{name: replace(getattr(config, name), **keys) for name, keys in sections.items()},
    )


def test_the_ids_are_those_of_the_tokenizers_in_the_graph(config):
    for kind in ("unigram", "bpe", "character", "byte", "word"):
        prepared = prepare_text(change(config, tokenizer={"kind": kind}))
        tokenizers = Tokenizers.load(prepared.tokenizer)
        pairs = list(prepared.corpus.pairs("train"))[:50]
        for number, pair in enumerate(pairs):
            for tokenizer, side, ids in zip(
                tokenizers, pair, prepared.train.pair(number), strict=True
            ):
                assert tokenizer.tokenize([side])[0].numpy().tolist() == ids.tolist(), kind


@pytest.mark.parametrize("joint", [True, False])
def test_one_vocabulary_or_one_for_each_side(config, joint):
    prepared = prepare_text(change(config, tokenizer={"joint": joint}))
    names = sorted(path.name for path in prepared.tokenizer.iterdir())
    assert names == (["joint.model"] if joint else ["source.model", "target.model"])
    assert Tokenizers.load(prepared.tokenizer).joint == joint


def test_a_second_start_reads_nothing_anew(config, monkeypatch):
    first = prepare_text(config)
    assert not first.reused

    def never(*_, **__):
        raise AssertionError("done again")

    for name in ("clean_corpus", "build_store", "learn"):
        monkeypatch.setattr(f"training.data.prepare.{name}", never)
    second = prepare_text(config)
    assert second.reused and second.folder == first.folder
    assert second.train.meta == first.train.meta
    other_training = change(
        config, train={"seed": 5}, data={"static_shapes": True, "weights": [2.0]}
    )
    assert prepare_text(other_training).reused


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer": {"vocab_size": 305}},
        {"tokenizer": {"kind": "bpe"}},
        {"data": {"max_length": 12}},
        {"cleaning": {"max_characters": 40}},
    ],
)
def test_other_settings_make_another_store(config, changes):
    first = prepare_text(config)
    other = prepare_text(change(config, **changes))
    assert not other.reused and other.folder != first.folder
    assert (other.corpus.folder == first.corpus.folder) == ("cleaning" not in changes)
    assert other.train.meta.fingerprint != first.train.meta.fingerprint
    assert prepare_text(config).reused, "the first is still there"


def test_other_text_makes_another_store(config, text):
    first = prepare_text(config)
    path = Path(config.data.train)
    path.write_text(text.replace("Seal", "Whale"))
    second = prepare_text(config)
    assert not second.reused
    assert second.train.meta.fingerprint != first.train.meta.fingerprint
    path.write_text(text)
    assert prepare_text(config).folder == first.folder


def test_two_epochs_share_no_pair_with_validation(config):
    prepared = prepare_text(config)
    held = set(prepared.corpus.pairs("valid")) | set(prepared.corpus.pairs("test"))
    store = prepared.train
    train = {(tuple(s.tolist()), tuple(t.tolist())) for s, t in map(store.pair, range(len(store)))}
    encoders = prepared.load_encoders()
    for pair in held:
        ids = [e.encode([side])[0].tolist() for e, side in zip(encoders, pair, strict=True)]
        assert tuple(map(tuple, ids)) not in train


def test_validation_is_not_cut_at_the_limit_of_training(config, tmp_path):
    (tmp_path / "v.tsv").write_text("A house. " * 40 + "\tEin Haus.\n")
    prepared = prepare_text(
        change(config, data={"max_length": 20, "valid": str(tmp_path / "v.tsv")})
    )
    assert len(prepared.valid) == 1 and prepared.valid.source_lengths[0] > 40
    assert prepared.train.source_lengths.max() <= 21


def test_one_line_of_fifty_thousand_words_is_left_out_and_shown(config, text):
    Path(config.data.train).write_text(text + "a b " * 25_000 + "\tein Satz\n")
    for limit, reason in (
        (5000, "too long (over 5000 characters)"),
        (None, "too long (over 100 tokens)"),
    ):
        prepared = prepare_text(
            change(config, cleaning={"max_characters": limit, "max_length_ratio": None})
        )
        dropped = {
            **next(iter(prepared.corpus.report.corpora.values())).dropped,
            **prepared.train.meta.report.dropped,
        }
        assert dropped[reason].count == 1
        assert prepared.train.source_lengths.max() < 101


def test_pairs_of_each_corpus_are_known_to_the_store(config, tmp_path, text):
    (tmp_path / "more.tsv").write_text("Many more words than are allowed here.\tno\nA sea.\tSee.\n")
    prepared = prepare_text(
        change(config, data={"train": [config.data.train, str(tmp_path / "more.tsv")],
                             "max_length": 20}),
    )  # fmt: skip
    meta = prepared.train.meta
    assert sum(meta.corpus_pairs) == meta.pairs == len(prepared.train)
    assert meta.corpus_pairs[1] <= 1


@pytest.fixture(scope="module")
def foreign(tmp_path_factory, text):
    """A model as SentencePiece makes it by default: other reserved ids, its own normalization."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "text").write_text(text)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "foreign"), vocab_size=60,
        minloglevel=2,
    )  # fmt: skip
    return folder / "foreign.model"


def test_a_vocabulary_that_is_there_is_used_and_none_learned(config, foreign, monkeypatch):
    monkeypatch.setattr("training.data.prepare.learn", None)
    prepared = prepare_text(change(config, tokenizer={"file": str(foreign)}))
    original = sentencepiece.SentencePieceProcessor(model_file=str(foreign))
    tokenizer = Tokenizers.load(prepared.tokenizer).source
    pieces = tokenizer.pieces()
    for number, pair in enumerate(list(prepared.corpus.pairs("train"))[:50]):
        ids = prepared.train.pair(number)[0]
        assert [pieces[i] for i in ids] == original.encode(pair.source, out_type=str)
        assert tokenizer.detokenize([ids]).numpy()[0].decode() == pair.source


def test_the_vocabularies_of_another_run_are_used_as_they_are(config):
    learned = prepare_text(change(config, tokenizer={"joint": False, "kind": "word"}))
    files = ",".join(str(learned.tokenizer / f"{side}.txt") for side in ("source", "target"))
    again = prepare_text(change(config, tokenizer={"joint": False, "file": files}))
    assert again.train.meta.fingerprint == learned.train.meta.fingerprint


def test_a_wildcard_that_matches_the_same_bytes_as_another_format_makes_another_store(
    config, tmp_path
):
    rows = [f'{{"source": "house {i}",\t"target": "Haus {i}"}}\n' for i in range(50)]
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "f.tsv").write_text("".join(rows))
    wild = change(
        config,
        data={"train": str(tmp_path / "g" / "f*")},
        cleaning={"max_symbols": None},
        tokenizer={"kind": "byte"},
    )
    first = prepare_text(wild)
    (tmp_path / "g" / "f.tsv").rename(tmp_path / "g" / "f.jsonl")
    second = prepare_text(wild)
    assert next(first.corpus.pairs("train")).source.startswith("{")
    assert next(second.corpus.pairs("train")).source.startswith("house")


def test_text_that_changes_while_it_is_read_is_refused(config, monkeypatch):
    path = Path(config.data.train)

    def clean_while_another_writes(*arguments):
        corpus = clean_corpus(*arguments)
        path.write_text("only\tthis\n" * 9)
        return corpus

    monkeypatch.setattr("training.data.prepare.clean_corpus", clean_while_another_writes)
    with pytest.raises(InputError, match="train.tsv: changed while it was read"):
        prepare_text(config)
    assert [path.name for path in Path(config.data.cache).iterdir()] == ["files"] or not list(
        Path(config.data.cache).iterdir()
    )


@pytest.mark.parametrize("kind", ["character", "word"])
def test_sampling_is_refused_where_a_text_can_be_cut_in_one_way_only(config, kind):
    learned = prepare_text(change(config, tokenizer={"kind": kind}))
    file = next(learned.tokenizer.iterdir())
    with pytest.raises(InputError, match="tokenizer.sampling needs unigram or bpe"):
        prepare_text(change(config, tokenizer={"file": str(file), "sampling": 0.1}))


@pytest.mark.parametrize("name", ["train/source.tokens.npy", "train/meta.json"])
def test_a_damaged_store_is_named_with_what_to_do(config, name):
    (prepare_text(config).folder / name).write_bytes(b"")
    with pytest.raises(InputError, match="delete .*tokens-.* and start again"):
        prepare_text(config).train  # noqa: B018


def test_a_damaged_vocabulary_is_named_with_what_to_do(config):
    (prepare_text(config).tokenizer / "joint.model").write_bytes(b"")
    with pytest.raises(InputError, match="delete .*tokens-.* and start again"):
        prepare_text(config).load_encoders()


@pytest.mark.parametrize("place", ["run", "run/tokenizer"])
@pytest.mark.parametrize("joint", [True, False])
def test_a_run_folder_stands_for_its_vocabularies(config, tmp_path, place, joint):
    learned = prepare_text(change(config, tokenizer={"joint": joint}))
    shutil.copytree(learned.tokenizer, tmp_path / "run" / "tokenizer")
    file = str(tmp_path / place)
    again = prepare_text(change(config, tokenizer={"joint": joint, "file": file}))
    assert again.train.meta.fingerprint == learned.train.meta.fingerprint
    with pytest.raises(
        InputError, match=f"run.*: holds .*, so tokenizer.joint must be {str(joint).lower()}"
    ):
        prepare_text(change(config, tokenizer={"joint": not joint, "file": file}))


def test_a_vocabulary_of_another_language_is_told(config, tmp_path):
    (tmp_path / "joint.txt").write_text("<pad>\n<unk>\n<s>\n</s>\nHaus\n")
    other = change(config, tokenizer={"file": str(tmp_path / "joint.txt")})
    for text in (summary(other, prepare_text(other)), explained(other, prepare_text(other))):
        assert "warning: 100% of the source's tokens are unknown" in text
    assert "unknown to the vocabulary" not in summary(config, prepare_text(config))


def test_a_vocabulary_that_changes_at_its_path_makes_another_store(config, foreign, tmp_path):
    path = tmp_path / "mine.model"
    with_file = change(config, tokenizer={"file": str(path)})
    path.write_bytes(foreign.read_bytes())
    first = prepare_text(with_file)
    path.write_bytes((prepare_text(config).tokenizer / "joint.model").read_bytes())
    second = prepare_text(with_file)
    assert first.train.meta.fingerprint != second.train.meta.fingerprint
    assert Tokenizers.load(second.tokenizer).source.vocab_size == 310


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.model", None, "no such file"),
        ("vocab.json", b"{}", "must be a .model of SentencePiece or a .txt"),
        ("broken.model", b"nonsense", "broken.model: .*not a SentencePiece model"),
        ("empty.model", b"", "empty.model"),
        ("words.txt", b"not reserved\n", "words.txt"),
    ],
)
def test_what_is_no_vocabulary_is_refused_by_name(config, tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        prepare_text(change(config, tokenizer={"file": str(path)}))
    assert "\n" not in str(caught.value)
    left = [path.name for path in Path(config.data.cache).iterdir()]
    assert not any("tokens" in name or "partial" in name for name in left)


def test_learned_positions_must_hold_validation_and_test_text(config, tmp_path):
    (tmp_path / "v.tsv").write_text("House. House.\tEin\n" + "A sea. " * 30 + "\tSee\n")
    learned = change(
        config,
        data={"max_length": 20, "test": str(tmp_path / "v.tsv")},
        model={"positions": "learned", "max_length": 40},
    )
    with pytest.raises(InputError, match="v.tsv: test pair 2 .* tokens, .*model.max_length is 40"):
        prepare_text(learned)


def test_text_is_prepared_without_tensorflow(config):
    data = f"DataConfig(train={config.data.train!r}, cache={config.data.cache!r})"
    code = (
        "import sys; from training.config import *; from training.data.prepare import *;"
        "import training.data.__main__;"
        f"config = Config(data={data}, tokenizer=TokenizerConfig(vocab_size=310));"
        "prepare_text(config).train; print('tensorflow' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("False\n")


def test_rules_reach_the_text(config):
    prepared = prepare_text(change(config, cleaning={"max_characters": 30}))
    longest = max(len(side) for pair in prepared.corpus.pairs("train") for side in pair)
    assert longest <= 30
    assert CleaningConfig().max_characters == 5000


def test_a_store_in_the_cache_opens_as_one(config):
    prepared = prepare_text(config)
    assert TokenStore.open(prepared.folder / "train").meta == prepared.train.meta
