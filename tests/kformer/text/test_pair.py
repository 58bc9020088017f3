import pytest

from kformer.errors import InputError
from kformer.text import SentencePieceTokenizer, Tokenizers, WordTokenizer, load_tokenizer


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_joint_pair_stays_one_object(build, tmp_path):
    shared = build("bpe")
    pair = Tokenizers(shared, shared)
    pair.save(tmp_path / "tokenizer")
    loaded = Tokenizers.load(tmp_path / "tokenizer")
    assert pair.joint and loaded.joint and loaded.source is loaded.target
    assert names(tmp_path / "tokenizer") == ["joint.model"]


def test_a_separate_pair_keeps_its_sides_and_kinds(build, tmp_path):
    pair = Tokenizers(build("unigram"), build("words"))
    pair.save(tmp_path)
    loaded = Tokenizers.load(str(tmp_path))
    assert not loaded.joint
    assert isinstance(loaded.source, SentencePieceTokenizer)
    assert isinstance(loaded.target, WordTokenizer)
    assert loaded.source.pieces() == pair.source.pieces()
    assert loaded.target.pieces() == pair.target.pieces()
    assert names(tmp_path) == ["source.model", "target.txt"]


def test_saving_again_leaves_nothing_stale(build, tmp_path):
    words, subwords = build("words"), build("bpe")
    Tokenizers(words, subwords).save(tmp_path)
    Tokenizers(subwords, subwords).save(tmp_path)
    Tokenizers(words, words).save(tmp_path)
    assert names(tmp_path) == ["joint.txt"]
    assert Tokenizers.load(tmp_path).source.pieces() == words.pieces()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}/nowhere.*Give the folder"):
        Tokenizers.load(tmp_path / "nowhere")


def test_a_missing_side_is_named(build, tmp_path):
    build("words").save(tmp_path / "source.txt")
    with pytest.raises(InputError, match=f"{tmp_path}/target.*target.model or target.txt"):
        Tokenizers.load(tmp_path)


def test_ambiguous_folders_are_refused(build, tmp_path):
    build("words").save(tmp_path / "joint.txt")
    build("words").save(tmp_path / "source.txt")
    with pytest.raises(InputError, match="both a joint and separate"):
        Tokenizers.load(tmp_path)
    build("bpe").save(tmp_path / "source.model")
    with pytest.raises(InputError, match=r"source.model and source.txt"):
        load_tokenizer(tmp_path, "source")


def test_the_kind_is_found_by_name(build, tmp_path):
    build("words").save(tmp_path / "mine.txt")
    assert isinstance(load_tokenizer(tmp_path, "mine"), WordTokenizer)
