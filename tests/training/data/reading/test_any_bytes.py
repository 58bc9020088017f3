"""Whatever a file holds, its rows or one line come out of it: never another exception."""

import codecs
import gzip
import lzma

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from training.data.reading.sources import resolve

quickly = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def pieces(*parts: bytes):
    """Bytes at random, and bytes that look like the format."""
    likely = st.sampled_from(parts) | st.text(max_size=3).map(str.encode) | st.binary(max_size=3)
    return st.binary(max_size=60) | st.lists(likely, max_size=30).map(b"".join)


LINES = pieces(
    b"\n", b"\t", b"\r\n", b"\0", "\ufeff".encode(), b"a", "ä".encode(), codecs.BOM_UTF16_LE,
    codecs.BOM_UTF16_BE, b"\n\0", b"\t\0", b"\xe2\x80\xa8",
)  # fmt: skip
JSON = pieces(
    b"\n", b"{", b"}", b"[", b'"', b'"source"', b'"target"', b":", b",", b"\\ud800", b"9" * 4301,
    b'{"source": "a", "target": "b"}\n', b"\\", b"NaN", b"{" * 2000,
)  # fmt: skip
PO = pieces(
    b"\n", b'"', b"msgid ", b'msgid "a"\n', b'msgstr "b"\n', b'msgid ""\n', b'msgid_plural "c"\n',
    b'msgstr[0] "d"\n', b'msgstr[9] "e"\n', b'"more"\n', b'msgctxt "f"\n', b"#, fuzzy\n", b"#~ ",
    b"#| ", b"#", b"#:", b'"Content-Type: text/plain; charset=', b"UTF-8", b"utf-16", b"idna",
    b"hz\\n\"\n", b"\\", b"msgstr[", b"\xc2\x85", b"#~|", b"\r",
)  # fmt: skip
TMX = pieces(
    b'<tmx version="1.4">', b"<header", b' srclang="en"', b"/>", b">", b"<body>", b"<tu>", b"</tu>",
    b'<tuv xml:lang="en">', b'<tuv lang="de-AT">', b"<tuv>", b"<seg>", b"a", b"</seg></tuv>",
    b"<seg>b</seg></tuv>", b"<ph>", b"</ph>", b"<sub/>", b"&amp;", b"&x;", b"&#0;", b"<!--", b"-->",
    b"</body></tmx>", b'<?xml version="1.0" encoding="utf-7"?>',
    b'<!DOCTYPE tmx [<!ENTITY x "y">]>',
    b"<![CDATA[", b"]]>", b"\n", b"<tmx><body><tu>",
)  # fmt: skip


def rows_or_none(path):
    """The rows, or None after an error of one line."""
    try:
        rows = [row for part in resolve(path).parts for row in part.rows()]
    except InputError as error:
        assert "\n" not in str(error) and str(path).partition(",")[0][:-3] in str(error)
        return None
    for line, source, target in rows:
        assert line >= 1 and "\n" not in source and "\n" not in (target or "")
        assert target is not None or len(source) <= 200
        (source + (target or "")).encode()
    return rows


WIDE = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def count(text: bytes) -> int:
    """How many lines there are."""
    return text.count(b"\n") + (text != b"" and not text.endswith(b"\n"))


@pytest.mark.parametrize(("name", "content"), [("c.tsv", LINES), ("c.jsonl", JSON)])
@quickly
@given(data=st.data())
def test_lines(tmp_path, name, content, data):
    path = tmp_path / name
    text = data.draw(content)
    path.write_bytes(text)
    rows = rows_or_none(path)
    if rows is not None and not text.startswith(WIDE):
        assert [row.line for row in rows] == list(range(1, count(text) + 1))


@quickly
@given(sources=LINES, targets=LINES)
def test_parallel_files(tmp_path, sources, targets):
    (tmp_path / "c.en").write_bytes(sources)
    (tmp_path / "c.de").write_bytes(targets)
    rows = rows_or_none(f"{tmp_path}/c.en,{tmp_path}/c.de")
    if rows is not None and not sources.startswith(WIDE):
        assert len(rows) == count(sources)


@pytest.mark.parametrize(("name", "content"), [("c.po", PO), ("c.tmx", TMX)])
@quickly
@given(data=st.data())
def test_entries(tmp_path, name, content, data):
    (tmp_path / name).write_bytes(data.draw(content))
    rows_or_none(tmp_path / name)


WHOLE = {
    "c.tsv.gz": gzip.compress(b"a\tb\n" * 9),
    "c.tsv.xz": lzma.compress(b"a\tb\n" * 9),
    "c.tsv.zst": zstandard.ZstdCompressor().compress(b"a\tb\n" * 9),
}


@pytest.mark.parametrize("name", WHOLE)
@quickly
@given(data=st.data())
def test_compressed_files(tmp_path, name, data):
    whole = WHOLE[name]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    (tmp_path / name).write_bytes(whole[:start] + data.draw(st.binary(max_size=9)) + whole[stop:])
    rows_or_none(tmp_path / name)


@quickly
@given(st.text(max_size=12) | st.lists(st.sampled_from("*?[]!,ab-./")).map("".join))
def test_names(spec):
    try:
        resolve(f"no-such/{spec}")
    except InputError as error:
        assert "\n" not in str(error) or "\n" in spec
