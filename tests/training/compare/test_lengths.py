"""BLEU by the length of the source."""

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from tests.training.compare.test_significance import corpus, worse
from training.compare.lengths import bleu_by_length, length_groups


@given(
    st.lists(st.integers(0, 50), max_size=20),
    st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_each_sentence_is_in_the_one_group_of_its_length(counts, lengths):
    groups = length_groups([" ".join("x" * count) for count in counts], lengths)
    assert sorted(row for rows in groups.values() for row in rows) == list(range(len(counts)))
    for name, rows in groups.items():
        start, _, end = name.removesuffix("+").partition("-")
        least = 0 if start == "1" else int(start)
        most = 10**9 if name.endswith("+") else int(end or start)
        assert rows and all(least <= counts[row] <= most for row in rows)


def test_groups_come_in_order_and_empty_ones_not_at_all():
    groups = length_groups(["a " * 25, "a", "a " * 10, "a " * 11], [10, 20, 30])
    assert groups == {"1-10": [1, 2], "11-20": [3], "21-30": [0]}
    assert list(length_groups(["a " * 31, "a"], [1, 30])) == ["1", "31+"]


@pytest.mark.parametrize("tokenize", ["13a", "char"])
def test_bleu_of_a_group_is_sacrebleus_of_its_sentences_alone(tokenize):
    references = corpus()
    translations = worse(references, 0.2, 1)
    groups = length_groups(references, [6, 9])
    found = bleu_by_length(groups, translations, references, tokenize)
    for name, least, most in (("1-6", 0, 6), ("7-9", 7, 9), ("10+", 10, 99)):
        rows = [i for i, text in enumerate(references) if least <= len(text.split()) <= most]
        bleu = sacrebleu.corpus_bleu(
            [translations[row] for row in rows],
            [[references[row] for row in rows]],
            tokenize=tokenize,
        )
        assert found[name] == pytest.approx(bleu.score) and 0 < found[name] < 100
