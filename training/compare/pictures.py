"""The pictures of a report."""

import statistics
from pathlib import Path

from kformer import plots
from kformer.plots import can_draw
from training.compare.results import Results

CURVES, LENGTHS = "curves.png", "lengths.png"


def draw(results: Results, folder: Path) -> list[str]:
    """Draws the validations during training and BLEU by length.

    Args:
        results: what to show.
        folder: where to.

    Returns:
        The names of the files; none where matplotlib is not installed.
    """
    if not can_draw():
        print("no pictures: matplotlib is not installed (pip install 'kformer[plots]')")
        return []
    names = [LENGTHS]
    # Seeds may have no update in common, and variants no figures.
    curves = {name: rounds for name, rounds in results.curves.items() if rounds}
    if curves:
        plots.save(plots.curves(curves), folder / CURVES)
        names = [CURVES, LENGTHS]
    by_length = {
        row.name: [
            statistics.fmean(result.bleu_by_length[name] for result in row.results)
            for name in results.sentences
        ]
        for row in results.rows
        if row.results
    }
    plots.save(
        plots.bleu_by_length(list(results.sentences), by_length, "source words"), folder / LENGTHS
    )
    return names
