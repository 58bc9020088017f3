"""BLEU by the length of the source."""

from collections.abc import Sequence

from training.scoring import score


def length_groups(sources: Sequence[str], lengths: Sequence[int]) -> dict[str, list[int]]:
    """Which sentences are how long, in words (with spaces between).

    Args:
        sources: the sentences.
        lengths: the most words of each group but the last, rising.

    Returns:
        For each group that is not empty the indices of its sentences, under a name such as 1-10,
        11-20 or 21+.
    """
    starts = [1, *(length + 1 for length in lengths)]
    names = [
        str(start) if start == end else f"{start}-{end}"
        for start, end in zip(starts, lengths, strict=False)
    ]
    groups = {name: [] for name in [*names, f"{starts[-1]}+"]}
    for index, source in enumerate(sources):
        words = len(source.split())
        group = sum(words > length for length in lengths)
        list(groups.values())[group].append(index)
    return {name: indices for name, indices in groups.items() if indices}


def bleu_by_length(
    groups: dict[str, list[int]],
    translations: Sequence[str],
    references: Sequence[str],
    bleu_tokenize: str = "13a",
) -> dict[str, float]:
    """BLEU of the sentences of each group by themselves.

    Args:
        groups: as `length_groups` gives them.
        translations: one a sentence.
        references: one a sentence.
        bleu_tokenize: sacreBLEU's tokenizer for BLEU.
    """
    return {
        name: score(
            [translations[index] for index in indices],
            [references[index] for index in indices],
            bleu_tokenize,
        ).bleu
        for name, indices in groups.items()
    }
