import os

import pytest

from kformer.errors import InputError
from training.data.reading.names import Names
from training.data.reading.sources import embedded_corpora, resolve


def test_a_source_knows_its_name_files_and_parts(write, tmp_path):
    tsv = write("c.tsv", "a\tb\n")
    found = resolve(tmp_path / "c.tsv")
    assert found.name == tsv and found.files == (tmp_path / "c.tsv",)
    [part] = found.parts
    assert (part.name, part.files, part.unit) == (tsv, found.files, "line")
    assert list(part.rows()) == list(part.rows()) == [(1, "a", "b")]
    sides = write("c.en", "a\n") + " , " + write("c.de", "b\n")
    found = resolve(sides)
    assert found.name == sides and found.files == (tmp_path / "c.en", tmp_path / "c.de")
    assert found.parts[0].name == sides.replace(" , ", ",")


def test_names_go_to_the_format(write):
    [part] = resolve(write("c.jsonl", '{"a": "x", "b": "y"}\n'), Names("a", "b")).parts
    assert list(part.rows()) == [(1, "x", "y")]


def test_embedded_corpora_are_read_by_name(rows):
    assert "libreoffice-help.en-de/train" in embedded_corpora()
    found = rows("libreoffice-help.en-de/test")
    assert len(found) == 834 and all(row[2] for row in found)


def test_embedded_corpora_can_be_others(write, tmp_path):
    write("corpora/mine.en-de/train.tsv", "a\tb\n")
    corpora = embedded_corpora(tmp_path / "corpora")
    [part] = resolve("mine.en-de/train", corpora=corpora).parts
    assert part.name == "mine.en-de/train" and list(part.rows()) == [(1, "a", "b")]


@pytest.mark.parametrize("name", ["a,b.tsv", "a,b.tmx", "a,b.jsonl"])
def test_a_comma_may_be_part_of_a_name(write, name):
    spec = write(name, "")
    assert [part.name for part in resolve(spec).parts] == [spec]


def test_what_is_missing_is_named_before_anything_is_read(write, tmp_path, error):
    assert error(tmp_path / "no.tsv") == f"{tmp_path / 'no.tsv'}: no such file"
    there = write("c.en", "a\n")
    for spec in (f"{there},{tmp_path / 'c.de'}", f"{tmp_path / 'c.de'},{there}"):
        with pytest.raises(InputError, match=r"c\.de: no such file"):
            resolve(spec)


def test_directories_and_pipes_are_named(tmp_path, error):
    (tmp_path / "c.tsv").mkdir()
    assert "c.tsv: is a directory" in error(tmp_path / "c.tsv")
    os.mkfifo(tmp_path / "p.tsv")
    assert "p.tsv: is no regular file" in error(tmp_path / "p.tsv")
    (tmp_path / "l.tsv").symlink_to(tmp_path / "nowhere")
    assert "l.tsv: no such file" in error(tmp_path / "l.tsv")


def test_a_file_that_may_not_be_read_is_named(write, error, monkeypatch):
    spec = write("c.tsv", "")

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert error(spec) == f"{spec}: cannot be read (Permission denied)"


@pytest.mark.parametrize("name", ["c.text", "c", "c.json", "c.gz", ".tsv.zip"])
def test_an_unknown_ending_gets_the_choices(write, error, name):
    message = error(write(name, "a\tb\n"))
    assert f"{name}: its ending does not say" in message and ".tsv, .jsonl" in message


@pytest.mark.parametrize(
    "spec", ["", "libreoffice-help.en-de/dev", "no.text", "a,b,c", "a,", ",", "a\0b", "\ud800*"]
)
def test_what_is_not_a_corpus_gets_the_choices(error, spec):
    message = error(spec)
    assert f"{spec!r} is not a corpus" in message and "libreoffice-help.en-de/train" in message


def test_two_corpora_are_not_two_sides(write, error):
    spec = write("a.tsv", "a\tb\n") + "," + write("b.tsv.gz", "")
    assert "each is a corpus of its own" in error(spec)


def names(spec):
    return [os.path.basename(part.name) for part in resolve(spec).parts]


def test_wildcards_stand_for_all_files_in_the_order_of_their_names(write, tmp_path, pairs):
    for name in ("b1.tsv", "a1.tsv", "a2.jsonl", "c1.tsv.txt", "d/a1.tsv"):
        write(name, f"{name}\tx\n")
    assert names(tmp_path / "*.tsv") == ["a1.tsv", "b1.tsv"]
    assert names(tmp_path / "a?.*") == ["a1.tsv", "a2.jsonl"]
    assert names(tmp_path / "[!b]1.tsv") == ["a1.tsv"]
    assert pairs(tmp_path / "*" / "a1.tsv") == [("d/a1.tsv", "x")]


def test_what_a_wildcard_matches_is_filled_into_the_other_side(write, tmp_path, pairs):
    for i, name in enumerate(["x1-a", "x2-b", "x2-bc-d"]):
        write(f"en/{name}.txt", f"source {i}\n")
        write(f"{name}.de.gz.txt", f"target {i}\n")
    write("y1-a.de.gz.txt", "alone\n")
    expected = [(f"source {i}", f"target {i}") for i in range(3)]
    assert pairs(f"{tmp_path}/en/x[0-9]-*.txt,{tmp_path}/x?-*.de.gz.txt") == expected
    assert pairs(f"{tmp_path}/e?/*.txt,{tmp_path}/e?/*.txt")[0] == ("source 0", "source 0")


def test_a_match_without_its_other_side_is_named(write, tmp_path, error):
    for name in ("1.en", "2.en", "1.de"):
        write(name, "")
    assert "2.de: no such file" in error(f"{tmp_path}/*.en,{tmp_path}/*.de")
    for other in ("1.de", "*.?e"):
        assert "same wildcards" in error(f"{tmp_path}/*.en,{tmp_path}/{other}")


def test_a_name_that_exists_is_taken_literally(write, tmp_path):
    for name in ("[a].tsv", "a.tsv", "*.en", "b.en", "*.de", "b.de"):
        write(name, "")
    assert names(tmp_path / "[a].tsv") == ["[a].tsv"]
    assert names(f"{tmp_path}/*.en,{tmp_path}/*.de") == ["*.de"]


def test_a_pattern_without_a_match_is_named(tmp_path, error):
    assert error(tmp_path / "*.tsv") == f"{tmp_path}/*.tsv: no file matches"
    assert error(f"{tmp_path}/*.en,{tmp_path}/*.de") == f"{tmp_path}/*.en: no file matches"
