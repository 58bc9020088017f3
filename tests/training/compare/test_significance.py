"""Significance is sacreBLEU's."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from training.compare.significance import paired_bootstrap

WORDS = "the a red old new house cat sees big small dog and runs to of".split()


def corpus(size=60):
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=generator.randint(4, 12))) for _ in range(size)]


def worse(texts, share, seed):
    """The texts with a share of their words exchanged."""
    generator = random.Random(seed)
    return [
        " ".join(
            generator.choice(WORDS) if generator.random() < share else word for word in text.split()
        )
        for text in texts
    ]


def test_p_values_are_those_of_sacrebleus_own_command():
    references = corpus()
    systems = [worse(references, share, seed) for seed, share in enumerate((0.3, 0.32, 0.6))]
    p_values, signature = paired_bootstrap(systems[0], systems[1:], references, "char")
    named = [(str(number), texts) for number, texts in enumerate(systems)]
    signatures, scores = PairedTest(
        named, {"BLEU": BLEU(tokenize="char")}, [references], test_type="bs", n_samples=1000
    )()
    assert p_values == [result.p_value for result in scores["BLEU"][1:]]
    assert signature == str(signatures["BLEU"])
    assert "bs:1000" in signature and "seed:12345" in signature and "tok:char" in signature


def test_p_values_are_those_of_the_definition():
    references = corpus(30)
    first, second = worse(references, 0.3, 1), worse(references, 0.4, 2)
    (p_value,), _ = paired_bootstrap(first, [second], references)
    bleu = BLEU()

    def scored(texts, rows):
        return bleu.corpus_score(
            [texts[row] for row in rows], [[references[row] for row in rows]]
        ).score

    draws = np.random.default_rng(12345).choice(30, size=(1000, 30), replace=True)
    drawn = np.array([abs(scored(first, rows) - scored(second, rows)) for rows in draws])
    found = abs(scored(first, range(30)) - scored(second, range(30)))
    beyond = np.sum(drawn - drawn.mean() > found)
    # Its sums are in single precision.
    assert p_value == pytest.approx((beyond + 1) / 1001, abs=0.005)


def test_a_large_difference_is_significant_and_none_is_not():
    references = corpus()
    good, bad = worse(references, 0.05, 1), worse(references, 0.8, 2)
    p_values, _ = paired_bootstrap(good, [bad, good], references)
    assert p_values[0] < 0.01 and p_values[1] == 1.0
