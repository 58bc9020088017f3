import bz2
import gzip
import io
import lzma
import zipfile

import pytest
import zstandard


def zst(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zst}
KIND = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
# More than a block of any of them, and not all alike.
LONG = b"".join(b"%d\t%d\n" % (i, i * 7919 % 100_003) for i in range(50_000))

each = pytest.mark.parametrize("ending", PACK)


@each
def test_compressed_files_read_as_if_they_were_not(write, rows, ending):
    pack = PACK[ending]
    plain = rows(write("c.tsv", LONG))
    assert len(plain) == 50_000
    assert rows(write(f"d.tsv{ending}", pack(LONG))) == plain
    assert rows(write(f"e.TSV{ending.upper()}", pack(b"0\t0\n1\t7919\n"))) == plain[:2]
    sides = write(f"c.en{ending}", pack(b"a\nb\n")), write("c.de", b"x\ny\n")
    assert rows(",".join(sides)) == [(1, "a", "x"), (2, "b", "y")]


@each
def test_compressed_files_that_were_concatenated_are_read_to_the_end(write, rows, ending):
    content = PACK[ending](b"a\tb\nc") + PACK[ending](b"\td\n")
    assert rows(write(f"c.tsv{ending}", content)) == [(1, "a", "b"), (2, "c", "d")]


@each
@pytest.mark.parametrize("name", ["c.jsonl", "c.tmx", "c.po"])
def test_every_format_may_be_compressed(write, rows, ending, name):
    content = {
        "c.jsonl": b'{"source": "a", "target": "b"}\n',
        "c.tmx": b'<tmx><body><tu><tuv lang="en"><seg>a</seg></tuv>'
        b'<tuv lang="de"><seg>b</seg></tuv></tu></body></tmx>',
        "c.po": b'msgid "a"\nmsgstr "b"\n',
    }[name]
    assert rows(write(name + ending, PACK[ending](content))) == [(1, "a", "b")]


@each
@pytest.mark.parametrize("cut", [-1, -9, 40_000, 3])
def test_a_file_that_was_cut_off_is_named(write, error, ending, cut):
    message = error(write(f"c.tsv{ending}", PACK[ending](LONG)[:cut]))
    assert f"c.tsv{ending}: not a whole {KIND[ending]} file" in message


@each
def test_damaged_or_other_data_is_named(write, error, ending):
    whole = PACK[ending](LONG)
    damaged = whole[:5000] + b"\0" * 100 + whole[5100:]
    for content in (damaged, b"a\tb\n" * 10):
        message = error(write(f"c.tsv{ending}", content))
        assert f"c.tsv{ending}: not a whole {KIND[ending]} file" in message


@each
def test_a_damaged_tmx_is_named_as_the_compressed_file_it_is(write, error, ending):
    unit = b'<tu><tuv lang="en"><seg>%d</seg></tuv></tu>'
    content = b"<tmx><body>" + b"".join(unit % (i * i) for i in range(20_000))
    message = error(write(f"c.tmx{ending}", PACK[ending](content)[:-500]))
    assert f"not a whole {KIND[ending]} file" in message


@each
def test_what_is_empty_within_has_no_rows(write, rows, ending):
    assert rows(write(f"c.tsv{ending}", PACK[ending](b""))) == []


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("c.tsv", content)
    return file.getvalue()


@pytest.mark.parametrize("name", ["c.tsv", "c.jsonl", "c.tmx", "c.po", "c.tsv.gz"])
@pytest.mark.parametrize(
    ("kind", "pack"),
    [
        ("gzip", gzip.compress),
        ("xz", lzma.compress),
        ("zstd", zst),
        ("bzip2", bz2.compress),
        ("zip", zipped),
    ],
)
def test_compressed_data_under_another_name_is_recognised(write, error, name, kind, pack):
    content = pack(b"a\tb\n")
    if name.endswith(".gz"):
        content = gzip.compress(content)  # compressed twice
    assert f"{name}: holds {kind} data" in error(write(name, content))


def test_a_text_that_starts_like_bzip2_is_text(write, rows):
    assert rows(write("c.tsv", "BZh91\tb\n")) == [(1, "BZh91", "b")]
