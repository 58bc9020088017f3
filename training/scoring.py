"""Corpus scores by sacreBLEU, with the signatures that make them comparable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sacrebleu.metrics import BLEU, CHRF

from kformer.errors import InputError
from training.data.corpus import read_pairs

if TYPE_CHECKING:
    from kformer.graph import TranslationGraph
    from kformer.run_folder import RunFolder
    from training.config import ScoringConfig


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF of a corpus, in percent, and how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str

    def __str__(self) -> str:
        return (
            f"BLEU {self.bleu:.2f}  ({self.bleu_signature})\n"
            f"chrF {self.chrf:.2f}  ({self.chrf_signature})"
        )


def score(
    translations: Sequence[str], references: Sequence[str], bleu_tokenize: str = "13a"
) -> Scores:
    """Scores detokenised translations against one reference each, case and punctuation included.

    Args:
        translations: one a sentence.
        references: one a sentence.
        bleu_tokenize: sacreBLEU's tokenizer for BLEU, such as "13a", "zh" or "char".

    Raises:
        InputError: the numbers differ, there is nothing to score, or the tokenizer is unknown.
    """
    # sacreBLEU would score as many as the shorter side has, or fail on an empty list.
    if len(translations) != len(references):
        raise InputError(f"{len(translations)} translations for {len(references)} references")
    if not references:
        raise InputError("there is nothing to score: no reference")
    if bleu_tokenize not in BLEU.TOKENIZERS:
        raise InputError(
            f"scoring.bleu_tokenize must be one of {', '.join(sorted(BLEU.TOKENIZERS))}. "
            f"Received: {bleu_tokenize}"
        )
    try:
        bleu, chrf = BLEU(tokenize=bleu_tokenize), CHRF()
    except RuntimeError as error:
        raise InputError(
            f"scoring.bleu_tokenize {bleu_tokenize}: {' '.join(str(error).split())}"
        ) from error
    translations, references = list(translations), [list(references)]
    return Scores(
        bleu.corpus_score(translations, references).score,
        chrf.corpus_score(translations, references).score,
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def score_run(
    run: "RunFolder",
    scoring: "ScoringConfig",
    data: str | None = None,
    graph: "TranslationGraph | None" = None,
) -> tuple[list[str], Scores]:
    """Translates a run's test text with its best model, and scores that.

    Args:
        run: a complete run folder.
        scoring: how to translate and to score.
        data: other text to score on, as `read_pairs` takes it.
        graph: translates with another search than `scoring` says.

    Returns:
        The translations in the order of the text, and their scores.

    Raises:
        InputError: the folder is incomplete or the text cannot be read.
    """
    # Scores alone are had without TensorFlow.
    from kformer.translator import Translator
    from training.build import build_search

    if graph is None:
        translator = Translator.from_run(run.path, build_search(scoring))
    else:
        translator = Translator(graph)
    pairs = run.pairs("test") if data is None else read_pairs(data)
    sources, references = zip(*pairs, strict=True)
    translations = translator.translate(sources)
    return translations, score(translations, references, scoring.bleu_tokenize)
