import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kformer.errors import InputError
from training.config import CleaningConfig
from training.data.cleaning import Chunk, Cleaner, source_hash
from training.data.report import Dropped, Example, Report
from training.data.rows import Row

NO_RULES = CleaningConfig(
    max_characters=None, max_length_ratio=None, identical=False, duplicates="none",
    max_symbols=None,
)  # fmt: skip


def clean(rows, strict=False, **rules):
    """Cleans rows with no rule but those given."""
    config = CleaningConfig(**{**vars(NO_RULES), **rules})
    rows = [Row(number, *row) for number, row in enumerate(rows, 1)]
    return Cleaner(config, strict)()(Chunk("text.tsv, line", rows))


def kept(source, target, **rules):
    return clean([(source, target)], **rules).report.kept == 1


def test_texts_are_brought_into_normal_form():
    cleaned = clean([("\u2028a\u00a0b\x00c\u0085", "u\u0308\ttab ")])
    assert cleaned.lines == ["a bc\tü tab\n".encode()]


def test_rows_without_two_texts_are_counted_with_where_they_stand():
    rows = [("one", None), ("", "two"), ("three", "drei"), (" \u200a\x00", "four"), ("five", "\v")]
    cleaned = clean(rows)
    assert cleaned.lines == [b"three\tdrei\n"]
    assert cleaned.report == Report(
        1,
        {
            "malformed": Dropped(1, [Example("text.tsv, line 1", "one", "")]),
            "with an empty side": Dropped(
                3,
                [
                    Example("text.tsv, line 2", "", "two"),
                    Example("text.tsv, line 4", " \u200a\x00", "four"),
                    Example("text.tsv, line 5", "five", "\v"),
                ],
            ),
        },
    )


@pytest.mark.parametrize("row", [("no tab", None), ("", "target"), ("source", " ")])
def test_rows_without_two_texts_are_refused_by_line_where_strict(row):
    with pytest.raises(InputError, match="^text.tsv, line 2: .*data.strict") as caught:
        clean([("a", "b"), row], strict=True)
    assert "\n" not in str(caught.value)


def test_each_reason_has_three_examples_of_bounded_size():
    report = clean([("x" * 9000, "y")] * 5, max_characters=100).report
    (dropped,) = report.dropped.values()
    assert dropped.count == 5 and len(dropped.examples) == 3
    assert all(len(example.source) < 200 for example in dropped.examples)


@pytest.mark.parametrize(
    ("rule", "left_out", "let_pass"),
    [
        ({"max_characters": 5}, [("123456", "a"), ("a", "123456")], [("12345", "12345")]),
        # Characters, not bytes.
        ({"max_characters": 5}, [], [("いろはにほ", "äöüßß")]),
        (
            {"max_length_ratio": 3},
            [("a" * 31, "b" * 10), ("a", "b" * 31), ("a" * 100, "b" * 33)],
            [("a" * 30, "b" * 10), ("a", "b" * 30), ("a" * 99, "b" * 33)],
        ),
        ({"identical": True}, [("same", "same"), (" same", "same\u3000")], [("Same", "same")]),
        (
            {"max_symbols": 0.5},
            [("*** a", "text"), ("text", "2026-11-30 b"), ("=====", "=====")],
            [("a*b", "b"), ("No. 5", "Nr. 5"), ("¿Qué?", "What?"), ("हिन्दी।", "a"), ("ไทย", "ก็")],
        ),
        (
            {"source_script": "Cyrillic"},
            [("latin", "кириллица"), ("ла tin", "x")],
            [("кириллица", "latin"), ("кирилл x", "1"), ("2026 – 11", "no letters")],
        ),
        (
            {"target_script": ["Han", "Hiragana", "Katakana"]},
            [("a", "latin"), ("a", "한국어")],
            [("a", "漢字とカタカナ")],
        ),
        ({"source_script": "Latin", "min_script": 1.0}, [("latinа", "x")], [("latina", "x")]),
        (
            {"numbers": True},
            [("5 apples", "6 Äpfel"), ("one of 2", "eins"), ("1 and 1", "1")],
            [
                ("1,000.50 in 2026", "2026: 1.000,50"),
                ("1 000 000", "1,000,000"),
                ("page ٣", "Seite 3"),
                ("007", "7"),
                ("no number", "keine"),
                ("9" * 5000, "9" * 5000),
            ],
        ),
        (
            {"placeholders": True},
            [
                ("Hello {name}", "Hallo {nom}"),
                ("%s files", "Dateien"),
                ("<b>x</b>", "<b>x"),
                ("a &amp; b", "a und b"),
                ("%1 of %2", "%1 von %1"),
                ("%(count)d", "%(anzahl)d"),
            ],
            [
                ("{0} of {1}", "{1}: {0}"),
                ("100% done", "zu 100 % fertig"),
                ("5% Dividende", "5 %"),
                ("%d%% of %1$s", "%1$s: %d%%"),
                ("a < b > c", "x"),
                ("R&D; now", "F&E"),
                ("line\\nbreak", "Zeilen\\numbruch"),
            ],
        ),
    ],
)  # fmt: skip
def test_each_rule_leaves_out_what_it_names_and_nothing_else(rule, left_out, let_pass):
    for pair in left_out:
        assert not kept(*pair, **rule), pair
        assert kept(*pair), "only by this rule"
    for pair in let_pass:
        assert kept(*pair, **rule), pair


def test_a_pair_is_counted_under_the_first_rule_it_breaks():
    report = clean([("a" * 40, "a" * 40)] * 2, max_characters=30, identical=True).report
    assert list(report.dropped) == ["too long (over 30 characters)"]
    assert report.seen == 2


def test_sources_that_differ_in_case_or_space_have_one_hash():
    same = ["Straße nach É", "STRASSE nach É", "strasse  nach é"]
    assert len({source_hash(text) for text in same}) == 1
    assert source_hash("strasse nach e") != source_hash(same[0])


def test_hashes_of_pairs_tell_sides_apart():
    cleaned = clean([("a", "b c"), ("a b", "c"), ("a", "b c")])
    assert cleaned.pairs[0] == cleaned.pairs[2] != cleaned.pairs[1]


@pytest.mark.parametrize("name", ["Latn1", "Klingon", "", "a]", "\\"])
def test_what_is_no_script_is_refused_by_key(name):
    with pytest.raises(InputError, match="cleaning.source_script.*Received"):
        Cleaner(CleaningConfig(source_script=["Latin", name]))


def test_taking_pairs_out_keeps_the_counts_whole():
    cleaned = clean([("a", "1"), ("b", "2"), ("", "x"), ("c", "3")])
    rest = cleaned.without(np.array([True, False, True]), "repeated")
    assert rest.lines == [b"b\t2\n"] and rest.places.tolist() == [2]
    assert rest.pairs.tolist() == [cleaned.pairs[1]]
    assert rest.report.seen == 4 and rest.report.kept == 1
    assert rest.report.dropped["repeated"] == Dropped(
        2, [Example("text.tsv, line 1", "a", "1"), Example("text.tsv, line 4", "c", "3")]
    )
    assert cleaned.report.kept == 3, "the chunk itself stays as it was"


@given(
    st.lists(st.tuples(st.text(max_size=30), st.none() | st.text(max_size=30)), max_size=20),
    st.booleans(),
)
def test_rows_in_are_pairs_kept_and_rows_left_out(rows, all_rules):
    rules = vars(CleaningConfig(source_script="Latin", numbers=True, placeholders=True))
    cleaned = clean(rows, **(rules if all_rules else {}))
    assert cleaned.report.seen == len(rows)
    assert cleaned.report.kept == len(cleaned.lines) == len(cleaned.places)
    for line in cleaned.lines:
        source, target = line.decode().removesuffix("\n").split("\t")
        for text in (source, target):
            assert text and text == text.strip() == unicodedata.normalize("NFC", text)
            assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in text)
