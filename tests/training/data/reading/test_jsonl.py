import json

import pytest


def test_the_sides_are_source_and_target_unless_named(write, pairs):
    spec = write("c.jsonl", '{"source": "a", "target": "b", "en": "c", "de": "d"}\n')
    assert pairs(spec) == [("a", "b")]
    assert pairs(spec, "en", "de") == [("c", "d")]
    assert pairs(spec, "en") == [("c", "b")]


def test_dots_go_down_unless_they_are_the_key(write, pairs):
    lines = [
        {"translation": {"en": "a", "de": {"text": "b"}}},
        {"translation.en": "c", "translation": {"en": "not this", "de": {"text": "d"}}},
    ]
    spec = write("c.ndjson", "".join(json.dumps(line) + "\n" for line in lines))
    assert pairs(spec, "translation.en", "translation.de.text") == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no json",
        '{"source": "a"',
        '["a", "b"]',
        '"source target"',
        "3",
        "null",
        '{"source": "a"}',
        '{"source": "a", "target": null}',
        '{"source": "a", "target": 3}',
        '{"source": "a", "target": ["b"]}',
        '{"source": "a", "target": "half of a pair: \\ud83d"}',
        "[" * 100_000,
        '{"source":' * 100_000,
        '{"source": "a", "target": "b", "n": ' + "9" * 5000 + "}",
    ],
)
def test_a_line_without_two_strings_is_malformed(write, rows, line):
    whole = '{"source": "a", "target": "b"}'
    assert rows(write("c.json-lines", f"{whole}\n{line}\n{whole}\n")) == [
        (1, "a", "b"),
        (2, line[:200], None),
        (3, "a", "b"),
    ]


@pytest.mark.parametrize("name", ["a.b", "source.en", "."])
def test_a_name_that_leads_nowhere_is_malformed(write, pairs, name):
    line = '{"source": "a", "target": "b"}'
    assert pairs(write("c.jsonl", line + "\n"), name) == [(line, None)]


def test_escaped_line_ends_become_spaces(write, pairs):
    spec = write(
        "c.jsonl", '{"source": "a\\nb\\r\\nc", "target": "\\u2028\\u0000d\\ud83d\\ude00"}\n'
    )
    assert pairs(spec) == [("a b c", "\u2028\0d😀")]
