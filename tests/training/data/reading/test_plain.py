import pytest


def test_further_columns_are_ignored(write, pairs):
    # As Anki exports have a third one.
    spec = write("c.tsv", "Go.\tGeh.\tCC-BY 2.0 (France) tatoeba.org\ntwo\tzwei\t\t\n")
    assert pairs(spec) == [("Go.", "Geh."), ("two", "zwei")]


def test_quotes_are_ordinary_characters(write, pairs):
    expected = [('"open', 'zu"'), ("'a'", '""b"'), ('"', "'")]
    assert pairs(write("c.tsv", "".join("\t".join(pair) + "\n" for pair in expected))) == expected


def test_every_line_is_a_row(write, rows):
    spec = write("c.tsv", "one\teins\nno tab\ntwo\t\n \tzwei\n\n\t\nthree\tdrei\n")
    assert rows(spec) == [
        (1, "one", "eins"),
        (2, "no tab", None),
        (3, "two", ""),
        (4, " ", "zwei"),
        (5, "", None),
        (6, "", ""),
        (7, "three", "drei"),
    ]


def test_a_malformed_row_shows_the_start_of_what_was_found(write, rows):
    assert rows(write("c.tsv", "long " * 1000)) == [(1, "long " * 40, None)]


def test_parallel_files_are_read_side_by_side(write, rows):
    # A TAB means nothing here; blank lines are rows like all others.
    spec = write("c.en", "a\tb\n\nc\n") + "," + write("c.de", "x\n\ny\r\n")
    assert rows(spec) == [(1, "a\tb", "x"), (2, "", ""), (3, "c", "y")]


@pytest.mark.parametrize(("sources", "targets"), [(5, 3), (3, 5), (0, 2), (3000, 2999)])
def test_parallel_files_of_different_length_are_named_with_their_counts(
    write, error, sources, targets
):
    spec = write("c.en", "a\n" * sources) + "," + write("c.de", "b\n" * targets)
    message = error(spec)
    assert f"c.en has {sources} lines" in message and f"c.de has {targets} lines" in message


def test_empty_files_have_no_rows(write, rows):
    assert rows(write("c.tsv", "")) == []
    assert rows(write("c.en", "") + "," + write("c.de", "")) == []
