import codecs
import re
import subprocess
import sys

import pytest

from training.data.reading.sources import resolve


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\r", "\0"])
def test_a_line_ends_at_lf_only(write, pairs, char):
    expected = [(f"one{char}two", f"eins{char}zwei"), ("three", "drei")]
    text = "".join(f"{source}\t{target}\n" for source, target in expected)
    assert pairs(write("c.tsv", text)) == expected
    sides = [write(f"c.{i}", f"{expected[0][i]}\n{expected[1][i]}\n") for i in (0, 1)]
    assert pairs(",".join(sides)) == expected


def test_one_cr_before_lf_is_trimmed(write, pairs):
    spec = write("c.tsv", "one\teins\r\ntwo\tzwei\r\r\n")
    assert pairs(spec) == [("one", "eins"), ("two", "zwei\r")]


def test_last_line_needs_no_end(write, rows):
    assert rows(write("c.tsv", "a\tb\nc\td")) == [(1, "a", "b"), (2, "c", "d")]


def test_byte_order_marks_are_removed_where_lines_begin(write, pairs):
    # Three files that were concatenated.
    spec = write("c.tsv", "\ufeffone\teins\ntwo\tzwei\n\ufeffthree\tdr\ufeffei\n")
    assert pairs(spec) == [("one", "eins"), ("two", "zwei"), ("three", "dr\ufeffei")]


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_wide_text_with_a_mark_is_read(write, pairs, mark, encoding):
    # The second line has bytes of CR, LF and TAB within other characters.
    expected = [("grün", "green"), ("\u0a0a\u0d0d", "\u0909\u2028"), ("𝄞", "clef\0")]
    text = "".join(f"{source}\t{target}\r\n" for source, target in expected)
    assert pairs(write("c.tsv", mark + text.encode(encoding))) == expected


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["one\teins\ntwo\tzwei\n", "a\tb", "Мама мыла раму\tда\nещё\tда, и ещё\n" * 20]
)
def test_utf16_without_a_mark_is_refused(write, error, encoding, text):
    message = error(write("c.tsv", text.encode(encoding)))
    assert f"c.tsv, line 1: not UTF-8, looks like {encoding};" in message
    assert f"iconv -f {encoding} -t UTF-8" in message


@pytest.mark.parametrize(
    "text",
    ["a\0b\tc\n", "a\0b\tc\0d\n", "\0a\t\0b\n", "a\0b\tc\0d", "a\0\0\0\tb\n" * 9],
)
def test_some_nuls_are_not_utf16(write, pairs, text):
    assert pairs(write("c.tsv", text)) == [
        tuple(line.split("\t")) for line in text.removesuffix("\n").split("\n")
    ]


def test_broken_wide_text_is_named(write, error):
    text = codecs.BOM_UTF16_LE + "a\tb\nc\td\n".encode("utf-16-le")
    assert "c.tsv, line 3: not UTF-16-LE" in error(write("c.tsv", text + b"x"))
    lone = codecs.BOM_UTF16_BE + "a\tb\nc".encode("utf-16-be") + b"\xd8\x00\x00\n"
    assert "d.tsv, line 2: not UTF-16-BE" in error(write("d.tsv", lone))


@pytest.mark.parametrize("before", [0, 1, 700, 12345])
def test_a_line_that_is_not_utf8_is_named_wherever_blocks_end(write, error, before):
    text = "grün\tgreen\n".encode() * before + b"two\tzw\xf6lf\n" + b"x\ty\n" * 9
    message = error(write("c.tsv", text))
    assert f"c.tsv, line {before + 1}: not UTF-8 (byte 0xf6)" in message


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Все люди рождаются свободными и равными в своём достоинстве и правах.\n"),
        ("utf-16-le", "すべての人間は、生まれながらにして自由であり、平等である。\n"),
        ("shift_jis", "すべての人間は、生まれながらにして自由であり、平等である。\n"),
    ],
)
def test_the_encoding_is_guessed(write, error, encoding, text):
    message = error(write("c.tsv", (text * 20).encode(encoding)))
    assert "c.tsv, line 1: not UTF-8 (byte 0x" in message
    guess = re.search(
        r", perhaps ([\w-]+); convert it, .*: iconv -f \1 -t UTF-8 \S+c.tsv", message
    )[1]
    assert text.encode(encoding).decode(guess) == text


def test_what_is_no_text_at_all_is_refused(write, error):
    assert "c.tsv, line 2: not UTF-8 (byte 0xff)" in error(write("c.tsv", b"a\tb\n\xff\n"))
    assert "c.tsv, line 1: not UTF-8 (byte 0xc3)" in error(write("c.tsv", b"a\xc3"))


def test_reading_does_not_take_in_the_whole_file(write):
    # What is wrong at the end is not met before the end.
    [part] = resolve(write("c.tsv", b"a\tb\n" * 5000 + b"\xff\n")).parts
    rows = part.rows()
    assert [next(rows).line for _ in range(3)] == [1, 2, 3]


def test_a_gigantic_line_is_read(write, pairs):
    side = "word " * 400_000
    assert pairs(write("c.tsv", f"{side}\t{side}\na\tb\n")) == [(side, side), ("a", "b")]


def test_the_locale_makes_no_difference_and_tensorflow_is_not_loaded(write):
    spec = write("ü.tsv", "grün\t„green“\n")
    program = (
        "import sys; from training.data.reading.sources import resolve;"
        "rows = list(resolve(sys.argv[1]).parts[0].rows());"
        "assert rows == [(1, 'gr\\xfcn', '\\u201egreen\\u201c')], rows;"
        "assert 'tensorflow' not in sys.modules and 'datasets' not in sys.modules"
    )
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-X", "utf8=0", "-c", program, spec]
    # From the folder of the packages, as the tests run.
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
