"""Whether a difference in BLEU is more than the choice of the test sentences."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest


def paired_bootstrap(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    bleu_tokenize: str = "13a",
) -> tuple[list[float], str]:
    """sacreBLEU's paired bootstrap of the BLEU of systems against that of one.

    The same 1,000 draws of test sentences are scored for both. It knows nothing of seeds: give it
    the translations of one run for each system. (Those of several seeds one after another would
    count each sentence several times, as if these were different ones, and so find any difference
    too certain.)

    Args:
        baseline: translations of the system that others are compared with.
        others: translations of each of them.
        references: one a sentence.
        bleu_tokenize: sacreBLEU's tokenizer for BLEU.

    Returns:
        A p-value for each of the others, 1 where BLEU is the same, and sacreBLEU's signature.

    Source:
        Koehn, "Statistical Significance Tests for Machine Translation Evaluation" (2004).
    """
    systems = [("baseline", list(baseline))]
    systems += [(str(number), list(texts)) for number, texts in enumerate(others)]
    test = PairedTest(
        systems, {"BLEU": BLEU(tokenize=bleu_tokenize)}, [list(references)], test_type="bs"
    )
    signatures, scores = test()
    first, *results = scores["BLEU"]
    # Its formula gives the same translations the smallest p, not the largest.
    p_values = [1.0 if result.score == first.score else result.p_value for result in results]
    return p_values, str(signatures["BLEU"])
