import pytest

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={}\\n"\n\n'


def test_msgid_and_msgstr_are_a_pair(write, rows):
    spec = write(
        "c.po",
        HEADER.format("UTF-8")
        + '# a comment\n#: file.c:3\nmsgid "a \\"b\\""\nmsgstr "ä"\n\n'
        + 'msgctxt "menu"\nmsgid ""\n"one "\n"two\\n"\n"three"\nmsgstr "eins\\tzwei\\\\n"\n'
        + 'msgid "no blank line before"\nmsgstr "keine"',
    )
    assert rows(spec) == [
        (5, 'a "b"', "ä"),
        (10, "one two three", "eins\tzwei\\n"),
        (16, "no blank line before", "keine"),
    ]


def test_plural_forms_are_two_pairs(write, pairs):
    forms = ["one", "few", "many"]
    for count, last in ((1, "one"), (2, "few"), (3, "many")):
        text = "".join(f'msgstr[{i}] "{form}"\n' for i, form in enumerate(forms[:count]))
        spec = write("c.po", f'msgid "%d file"\nmsgid_plural "%d files"\n{text}')
        assert pairs(spec) == [("%d file", "one"), ("%d files", last)]


def test_what_has_no_translation_in_force_has_an_empty_target(write, pairs):
    spec = write(
        "c.po",
        'msgid "not yet"\nmsgstr ""\n\n'
        '#, c-format, fuzzy\n#| msgid "old"\nmsgid "perhaps"\nmsgstr "vielleicht"\n\n'
        'msgid "day"\nmsgid_plural "days"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
        '#, fuzzy\nmsgid "hour"\nmsgid_plural "hours"\nmsgstr[0] "h"\nmsgstr[1] "hh"\n\n'
        'msgid "there"\nmsgstr "da"\n\n'
        '#~| msgid "older"\n#~ msgid "gone"\n#~ msgstr "weg"\n\n'
        '#~ msgid "gone too"\n#~ msgstr ""\n#~ "auch weg"\n\n'
        'msgid "cut"\nmsgid_plural "off"\n',
    )
    texts = ["not yet", "perhaps", "day", "days", "hour", "hours"]
    assert pairs(spec) == [(text, "") for text in texts] + [
        ("there", "da"),
        ("gone", ""),
        ("gone too", ""),
        ("cut", ""),
        ("off", ""),
    ]


@pytest.mark.parametrize("charset", ["ISO-8859-2", "koi8-r", "EUC-JP", "GB18030", "CHARSET", "x"])
def test_the_charset_is_the_headers(write, pairs, charset):
    text = {"ISO-8859-2": "łódź", "koi8-r": "да", "EUC-JP": "日本", "GB18030": "中文"}
    text = text.get(charset, "grün")
    encoding = "utf-8" if charset in ("CHARSET", "x") else charset
    content = HEADER.format(charset) + f'# {text}\nmsgid "a"\nmsgstr "{text}"\n'
    assert pairs(write("c.pot", content.encode(encoding))) == [("a", text)]


def test_text_that_is_not_in_the_charset_is_named(write, error):
    for charset in ("UTF-8", "EUC-JP"):
        content = HEADER.format(charset).encode() + b'msgid "a"\nmsgstr "gr\xfc"\n'
        assert f"c.po, line 6: not {charset}" in error(write("c.po", content))


@pytest.mark.parametrize("charset", ["utf-16", "rot13", "undefined", "punycode", "utf-7"])
def test_a_charset_that_is_none_is_named(write, error, charset):
    assert f"charset {charset} in the header" in error(write("c.po", HEADER.format(charset)))


def test_entries_are_the_same_wherever_the_file_is_cut(write, rows):
    entry = '#. note\nmsgctxt "{0}"\n\nmsgid ""\n"m {0}"\n\nmsgstr "s {0}"\n\n#~ msgid "o {0}"\n'
    content = "".join(entry.format(i) + f'#~ msgstr "o {i}"\n' for i in range(300))
    expected = []
    for i in range(300):
        expected += [(10 * i + 1, f"m {i}", f"s {i}"), (10 * i + 9, f"o {i}", "")]
    assert rows(write("c.po", content)) == expected


def test_the_header_of_a_second_file_is_a_row_like_any(write, pairs):
    content = HEADER.format("UTF-8") + 'msgid "a"\nmsgstr "b"\n'
    [one, header, other] = pairs(write("c.po", content * 2))
    assert one == other == ("a", "b") and header[0] == ""


@pytest.mark.parametrize("char", ["\u2028", "\u0085", "\f", "\r"])
def test_line_ends_of_unicode_do_not_end_a_line(write, pairs, char):
    assert pairs(write("c.po", f'msgid "a{char}b"\r\nmsgstr "c"\r\n')) == [("a b", "c")]


@pytest.mark.parametrize(
    "line",
    ["Hello\tHallo", 'msgid "a', "msgid a", 'msgid "', 'msgid a"b"', 'msgstr "x" y', '"a" "b"',
     'msgid "a"b"', 'msgstr[x] "a"', 'msgstr "out of place"', '#| nothing "x"', 'msgid"a"'],
)  # fmt: skip
def test_a_line_that_breaks_the_format_is_named(write, error, line):
    entries = 'msgid "a"\nmsgstr "b"\n\n' * 400
    content = f'{entries}msgid "c"\nmsgstr "d"\n{line}\n'
    assert "c.po, line 1203: " in error(write("c.po", content))


def test_a_file_of_comments_or_nothing_has_no_rows(write, rows):
    assert rows(write("c.po", "# nothing\n\n#~ \n#|\n#:\n")) == []
    assert rows(write("c.po", HEADER.format("UTF-8"))) == []
    assert rows(write("c.po", "")) == []
