import gzip
from collections import Counter

import pytest

from kformer.errors import InputError
from training.data.corpus import CorpusReport, embedded_corpora, read_pairs, split_pairs
from training.data.rows import Pair

PAIRS = [Pair("a house", "ein Haus"), Pair("grün", "„green“"), Pair("x  y ", " z")]


def tsv(pairs) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def write(path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def error(spec, report=None) -> str:
    with pytest.raises(InputError) as raised:
        list(read_pairs(spec, report))
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_tsv_parallel_files_and_gzip_read_the_same(tmp_path):
    content = tsv(PAIRS)
    sides = ["".join(pair[side] + "\n" for pair in PAIRS).encode() for side in (0, 1)]
    specs = [
        write(tmp_path / "c.tsv", content),
        write(tmp_path / "c.tsv.gz", gzip.compress(content)),
        write(tmp_path / "c.en", sides[0]) + "," + write(tmp_path / "c.de", sides[1]),
        write(tmp_path / "c.en.gz", gzip.compress(sides[0])) + "," + str(tmp_path / "c.de"),
    ]
    for spec in specs:
        assert list(read_pairs(spec)) == PAIRS


def test_a_comma_in_the_name_of_a_tsv_is_part_of_the_name(tmp_path):
    assert list(read_pairs(write(tmp_path / "a,b.tsv", tsv(PAIRS)))) == PAIRS


def test_last_line_needs_no_end(tmp_path):
    assert list(read_pairs(write(tmp_path / "c.tsv", tsv(PAIRS)[:-1]))) == PAIRS


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\r"])
def test_a_line_ends_at_lf_only(tmp_path, char):
    pairs = [Pair(f"one{char}two", f"eins{char}zwei"), Pair("three", "drei")]
    assert list(read_pairs(write(tmp_path / "c.tsv", tsv(pairs)))) == pairs
    sides = [write(tmp_path / f"c.{i}", f"{pairs[0][i]}\n{pairs[1][i]}\n".encode()) for i in (0, 1)]
    assert list(read_pairs(",".join(sides))) == pairs


def test_cr_before_lf_is_trimmed(tmp_path):
    spec = write(tmp_path / "c.tsv", b"one\teins\r\ntwo\tzwei\r\n")
    assert list(read_pairs(spec)) == [("one", "eins"), ("two", "zwei")]


def test_quotes_are_ordinary_characters(tmp_path):
    pairs = [Pair('"open', 'zu"'), Pair("'a'", '""b"')]
    assert list(read_pairs(write(tmp_path / "c.tsv", tsv(pairs)))) == pairs


def test_further_columns_are_ignored(tmp_path):
    spec = write(tmp_path / "c.tsv", b"one\teins\t0.5\tid\ntwo\tzwei\t\n")
    assert list(read_pairs(spec)) == [("one", "eins"), ("two", "zwei")]


def test_byte_order_mark_is_removed_at_the_start_only(tmp_path):
    spec = write(tmp_path / "c.tsv", b"\xef\xbb\xbfone\teins\n\xef\xbb\xbftwo\tzwei\n")
    assert list(read_pairs(spec)) == [("one", "eins"), ("\ufefftwo", "zwei")]


def test_rows_in_are_rows_kept_and_dropped(tmp_path):
    rows = b"one\teins\nno tab\ntwo\t\n \tzwei\n\nthree\tdrei\n\xc2\xa0\t\xe2\x80\xa8\n"
    report = CorpusReport()
    pairs = list(read_pairs(write(tmp_path / "c.tsv", rows), report))
    assert pairs == [("one", "eins"), ("three", "drei")]
    assert report.kept == 2 and report.seen == 7
    assert report.dropped == Counter({"empty side": 3, "malformed row": 2})
    assert report.first == {"malformed row": 2, "empty side": 3}


def test_reading_does_not_take_in_the_whole_file(tmp_path):
    # What is wrong at the end is not met before the end.
    pairs = read_pairs(write(tmp_path / "c.tsv", tsv(PAIRS) * 5000 + b"\xff\n"))
    assert [next(pairs) for _ in range(3)] == PAIRS


def test_embedded_corpus_is_read_by_name():
    assert "libreoffice-help.en-de/train" in embedded_corpora()
    counts = {}
    for part in ("train", "valid", "test"):
        report = CorpusReport()
        counts[part] = len(list(read_pairs(f"libreoffice-help.en-de/{part}", report)))
        assert report.dropped.total() == 0
    assert counts == {"train": 18791, "valid": 825, "test": 834}


def test_missing_file_is_named_before_anything_is_read(tmp_path):
    with pytest.raises(InputError, match=r"no\.tsv: no such file"):
        read_pairs(tmp_path / "no.tsv")
    there = write(tmp_path / "c.en", b"a\n")
    with pytest.raises(InputError, match=r"c\.de: no such file"):
        read_pairs(f"{there},{tmp_path / 'c.de'}")


def test_directory_is_named(tmp_path):
    (tmp_path / "c.tsv").mkdir()
    assert "c.tsv: is a directory" in error(tmp_path / "c.tsv")


def test_what_is_not_a_corpus_gets_the_choices(tmp_path):
    for name in ("libreoffice-help.en-de/dev", str(tmp_path / "c.txt"), "a,b,c", "a,", ""):
        message = error(name)
        assert repr(name) in message and "libreoffice-help.en-de/train" in message


def test_bytes_that_are_not_utf8_are_named_with_file_and_line(tmp_path):
    message = error(write(tmp_path / "c.tsv", b"one\teins\ntwo\tzw\xf6lf\n"))
    assert "c.tsv, line 2: not UTF-8" in message and "0xf6" in message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_recognised(tmp_path, encoding):
    message = error(write(tmp_path / "c.tsv", "one\teins\ntwo\tzwei\n".encode(encoding)))
    assert "c.tsv, line 1" in message and "UTF-16" in message


def test_gzip_under_another_name_is_recognised(tmp_path):
    message = error(write(tmp_path / "c.tsv", gzip.compress(tsv(PAIRS))))
    assert "c.tsv, line 1" in message and "gzip" in message


def test_broken_gzip_is_named(tmp_path):
    assert "c.tsv.gz: not a whole gzip" in error(write(tmp_path / "c.tsv.gz", tsv(PAIRS)))
    whole = gzip.compress(b"".join(b"%d\t%d\n" % (i, i * 7919) for i in range(50_000)))
    assert "d.tsv.gz: not a whole gzip" in error(write(tmp_path / "d.tsv.gz", whole[:-9]))
    damaged = whole[:5000] + b"\0" * 100 + whole[5100:]
    assert "e.tsv.gz: not a whole gzip" in error(write(tmp_path / "e.tsv.gz", damaged))


@pytest.mark.parametrize(("sources", "targets"), [(5, 3), (3, 5), (0, 2)])
def test_parallel_files_of_different_length_are_named_with_their_counts(tmp_path, sources, targets):
    source = write(tmp_path / "c.en", b"a\n" * sources)
    target = write(tmp_path / "c.de", b"b\n" * targets)
    message = error(f"{source},{target}")
    assert f"c.en has {sources} lines" in message and f"c.de has {targets} lines" in message


def test_empty_files_are_named(tmp_path):
    assert "c.tsv: is empty" in error(write(tmp_path / "c.tsv", b""))
    assert "d.tsv.gz: is empty" in error(write(tmp_path / "d.tsv.gz", gzip.compress(b"")))
    sides = write(tmp_path / "c.en", b"") + "," + write(tmp_path / "c.de", b"")
    assert f"{sides}: is empty" in error(sides)


def test_a_corpus_with_every_row_dropped_is_refused_with_the_counts(tmp_path):
    message = error(write(tmp_path / "c.tsv", b"no tab\nnone\n\tb\n"))
    assert "c.tsv" in message and "3 lines" in message
    assert "malformed row: 2 (first at line 1)" in message
    assert "empty side: 1 (first at line 3)" in message


def numbered(count):
    return [Pair(f"sentence {i}", f"Satz {i}") for i in range(count)]


def parts(pairs, **options):
    split = split_pairs(pairs, **options)
    return {part: set(split.select(pairs, part)) for part in ("train", "valid", "test")}


def test_parts_are_disjoint_whole_and_of_about_the_fraction_asked():
    pairs = numbered(10_000)
    found = parts(pairs, fraction=0.02)
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == len(pairs)
    assert 140 < len(found["valid"]) < 260 and 140 < len(found["test"]) < 260


def test_pairs_that_share_a_source_never_part():
    same = ["Straße  nach É", "STRASSE nach E\u0301", " strasse\tnach\u00a0é "]
    split = split_pairs(numbered(500), fraction=0.3)
    for i in range(200):
        assert len({split.part(f"{text} {i}") for text in same}) == 1


def test_split_is_stable_while_the_corpus_grows():
    small, large = parts(numbered(3000)), parts(numbered(9000))
    for part in small:
        assert small[part] <= large[part]


def test_split_ignores_order_and_repetition():
    pairs = numbered(2000)
    assert split_pairs(pairs) == split_pairs(pairs[::-1] + pairs[:700])


def test_limit_bounds_the_held_out_parts_and_only_gives_back_to_training():
    pairs = numbered(10_000)
    free, bounded = parts(pairs), parts(pairs, limit=120)
    for part in ("valid", "test"):
        assert 0 < len(bounded[part]) <= 120
        assert bounded[part] < free[part]


@pytest.mark.parametrize("count", [3, 4, 5, 10, 40])
@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.49])
def test_tiny_corpus_has_at_least_one_pair_in_each_part(count, fraction):
    assert all(parts(numbered(count), fraction=fraction).values())


def test_too_few_different_sources_to_split_are_refused():
    for pairs in ([], numbered(2), numbered(2) * 10):
        with pytest.raises(InputError, match=r"from [02] different sources"):
            split_pairs(pairs)


def test_split_is_the_same_in_every_process():
    # Recorded once; a hash with a random seed, such as Python's own, would not repeat it.
    found = parts(numbered(400))
    assert sorted(int(pair.source.split()[1]) for pair in found["test"]) == [
        67,
        84,
        96,
        125,
        141,
        145,
        214,
    ]


@pytest.mark.parametrize("fraction", [0, 0.5, -1, float("nan")])
def test_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(InputError, match="fraction"):
        split_pairs(numbered(9), fraction=fraction)
