"""Pictures of how long the texts of a corpus are."""

from pathlib import Path

import numpy as np

from kformer.plots.figure import new_figure, save
from training.data.store import TokenStore


def plot_lengths(store: TokenStore, path: Path) -> None:
    """Draws how many texts have how many tokens, and of pairs how much longer targets are than
    sources.

    Args:
        store: of the training pairs.
        path: the picture to write; its ending says in which format.

    Raises:
        InputError: Matplotlib is not installed, or the picture cannot be written.
    """
    meta = store.meta
    figure = new_figure(5.5 if meta.of_lines else 11, 4)
    lengths, *ratios = figure.subplots(1, 1 if meta.of_lines else 2, squeeze=False)[0]
    counts = {"source": meta.source.lengths, "target": meta.target.lengths}
    if meta.of_lines:
        counts = {"text": meta.target.lengths}
    # The last few long texts would squeeze all others into a corner.
    last = max(_quantile(count, 0.999) for count in counts.values())
    right = max(last, meta.max_length + 1)
    width = -(-right // 60)
    edges = np.arange(0, right + 2 * width, width)
    for side, count in counts.items():
        beyond = sum(count[edges[-1] :])
        label = f"{side}, {beyond:,} longer than shown" if beyond else side
        tokens = np.arange(len(count))
        lengths.hist(tokens, edges, weights=count, histtype="step", linewidth=1.6, label=label)
    lengths.axvline(
        meta.max_length + 0.5, color="0.4", linestyle="--", label=f"limit: {meta.max_length}"
    )
    lengths.set(xlabel="tokens of a text", ylabel="texts", title="Lengths, before the limit")
    lengths.set_xlim(0, edges[-1])
    figure.legend(*lengths.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    for axes in ratios:
        ratio = np.clip(np.log2(store.target_lengths / store.source_lengths), -3, 3)
        # An odd number of bins, so that pairs of equal length are in the middle of one.
        axes.hist(ratio, np.linspace(-3.05, 3.05, 62), color="tab:green")
        ticks = np.arange(-3, 4)
        axes.set_xticks(ticks, [f"1:{2**-t}" if t < 0 else f"{2**t}:1" for t in ticks])
        axes.set(xlabel="tokens of target : source", ylabel="pairs", title="How sides compare")
    for axes in (lengths, *ratios):
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.get_major_locator().set_params(integer=True)
    save(figure, path)


def _quantile(counts: list[int], share: float) -> int:
    """The length that so large a share of the texts does not pass."""
    return int(np.searchsorted(np.cumsum(counts), share * sum(counts)))
