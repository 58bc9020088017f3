import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from kformer import plots
from kformer.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
TOKENS = ["▁Click", "▁Yes", ".", "</s>"]


def attention_of(*shape, seed=0):
    weights = np.random.default_rng(seed).exponential(size=shape) ** 3
    return weights / weights.sum(axis=-1, keepdims=True)


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def panels_of(figure):
    """All axes that show data, without scales of colours."""
    return [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]


def shown_by(axes):
    (image,) = axes.images
    return np.asarray(image.get_array())


SMALL = {
    "positions": lambda: plots.positions(np.eye(3, 4)),
    "masks": lambda: plots.masks({"causal": np.tri(1)}, ["a"]),
    "schedules": lambda: plots.schedules({"linear": [1.0, 0.5, 0.0]}),
    "label_smoothing": lambda: plots.label_smoothing({"0.4": [0.1, 0.7, 0.1, 0.1]}, TOKENS),
    "attention": lambda: plots.attention(attention_of(1, 2, 3, 4), TOKENS, TOKENS[1:]),
    "alignment": lambda: plots.alignment(attention_of(3, 4), TOKENS, TOKENS[1:]),
    "curves": lambda: plots.curves({"run": [{"update": 5, "val_bleu": 20.5}]}),
    "bleu_by_length": lambda: plots.bleu_by_length(["1-9", "10-"], {"run": [20.0, None]}),
}


@pytest.fixture(params=SMALL)
def draw(request):
    return SMALL[request.param]


# What every picture can do


def test_a_figure_becomes_pixels_and_no_setting_of_matplotlib_changes(draw):
    before = dict(matplotlib.rcParams)
    figure = draw()
    image = plots.to_image(figure)
    assert dict(matplotlib.rcParams) == before
    height, width, colors = image.shape
    assert image.dtype == np.uint8 and colors == 4
    np.testing.assert_allclose([width, height], 100 * figure.get_size_inches(), atol=1)
    assert len(np.unique(image.reshape(-1, 4), axis=0)) > 10
    for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
        assert (edge == 255).all(), "background, so all text ends inside"


def test_a_png_has_the_size_of_the_pixels():
    figure = SMALL["alignment"]()
    png = plots.to_png(figure)
    size = [int.from_bytes(png[at : at + 4]) for at in (20, 16)]
    assert png.startswith(b"\x89PNG") and size == list(plots.to_image(figure).shape[:2])


def test_neither_pyplot_nor_a_display_is_needed_and_matplotlib_only_to_draw():
    program = (
        "import sys; from kformer import plots; assert 'matplotlib' not in sys.modules\n"
        "plots.to_png(plots.alignment([[1.0]], ['a'], ['b']))\n"
        "assert not {'matplotlib.pyplot', 'tensorflow'} & {*sys.modules}"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)


def test_without_matplotlib_one_is_told_what_to_install(draw, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'kformer\[plots\]'"):
        draw()
    with pytest.raises(InputError, match=r"pip install 'kformer\[plots\]'"):
        plots.check_path(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("b.pdf", b"%PDF"), ("c.SVG", b"<?xml")]
)
def test_the_ending_of_a_file_says_its_format(name, start, tmp_path):
    plots.save(SMALL["alignment"](), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.jpg", "a.jpg: pictures end in .png, .pdf or .svg"),
        ("a", "a: pictures end in"),
        ("none/a.png", "there is no folder"),
        ("folder.png", "is a folder"),
    ],
)
def test_a_file_that_cannot_become_a_picture_is_named(name, message, tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match=message):
        plots.save(SMALL["alignment"](), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_a_picture_that_cannot_be_finished_leaves_the_older_one(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"older")

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="a.png: No space left on device"):
        plots.save(SMALL["alignment"](), path)
    assert path.read_bytes() == b"older" and len(list(tmp_path.iterdir())) == 1


# Positions and masks


def test_positions_show_the_table_and_the_dot_products_of_its_rows():
    table = np.random.default_rng(0).normal(size=(7, 4))
    left, right = panels_of(plots.positions(table))
    np.testing.assert_array_equal(shown_by(left), table)
    expected = [[sum(a * b) for b in table] for a in table]
    np.testing.assert_allclose(shown_by(right), expected)
    low, high = left.images[0].get_clim()
    assert low == -high == -np.abs(table).max(), "white is nothing"


@pytest.mark.parametrize("table", [np.zeros((1, 2)), np.zeros((200, 512))])
def test_tables_of_any_size_are_drawn(table):
    plots.to_image(plots.positions(table))


def test_masks_fill_what_may_be_attended_to():
    padding = np.array([True, True, True, False])[None, None, None]
    causal = np.tri(4, dtype=bool)[None, None]
    masks = {"padding": padding, "causal": causal, "both": padding & causal}
    panels = panels_of(plots.masks(masks, TOKENS))
    assert [axes.get_title() for axes in panels] == list(masks)
    assert labels_of(panels[0].yaxis) == TOKENS
    for axes, mask in zip(panels, masks.values(), strict=True):
        assert labels_of(axes.xaxis) == TOKENS
        (mesh,) = axes.collections
        filled = (mesh.get_facecolor() == to_rgba("#0072b2")).all(axis=1).reshape(4, 4)
        np.testing.assert_array_equal(filled, np.broadcast_to(mask[0, 0], (4, 4)))
        # Row 0 on top, column 0 at the left.
        assert axes.get_ylim() == (4, 0) and axes.get_xlim() == (0, 4)


def test_queries_and_keys_may_differ_and_a_mask_must_fit_them():
    figure = plots.masks({"": np.ones((2, 3))}, ["a", "b"], ["x", "y", "z"])
    (axes,) = panels_of(figure)
    assert labels_of(axes.xaxis) == ["x", "y", "z"] and labels_of(axes.yaxis) == ["a", "b"]
    with pytest.raises(InputError, match=r"'causal' .* 4 queries and 4 keys. .* \(3, 3\)"):
        plots.masks({"causal": np.tri(3)}, TOKENS)


# Recipes


def test_schedules_count_updates_from_one():
    rates = {"up": [0.1, 0.2, 0.3], "_down": [0.3, 0.2]}
    (axes,) = panels_of(plots.schedules(rates))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(rates)
    for line, rate in zip(axes.lines, rates.values(), strict=True):
        assert line.get_xdata().tolist() == list(range(1, len(rate) + 1))
        assert list(line.get_ydata()) == rate


def test_target_distributions_are_bars_with_their_values():
    distributions = {"0": [0, 1, 0, 0], "0.4": [0.1, 0.7, 0.1, 0.1]}
    panels = panels_of(plots.label_smoothing(distributions, TOKENS))
    for axes, (name, distribution) in zip(panels, distributions.items(), strict=True):
        assert axes.get_title() == name and labels_of(axes.xaxis) == TOKENS
        assert [bar.get_height() for bar in axes.patches] == distribution
        assert [text.get_text() for text in axes.texts] == [f"{p:g}" for p in distribution]
    with pytest.raises(InputError, match=r"'0.1' .* 4 tokens. Received: shape \(2,\)"):
        plots.label_smoothing({"0.1": [0.5, 0.5]}, TOKENS)


# Attention


def test_each_layer_and_head_has_its_panel_on_one_scale():
    weights = attention_of(2, 3, 3, 4)
    figure = plots.attention(weights, TOKENS, TOKENS[1:], "a source\na translation")
    panels = panels_of(figure)
    assert figure.get_suptitle() == "a source\na translation" and len(panels) == 6
    for number, axes in enumerate(panels):
        layer, head = divmod(number, 3)
        assert axes.get_title() == f"layer {layer}, head {head}"
        np.testing.assert_array_equal(shown_by(axes), weights[layer, head])
        assert axes.images[0].get_clim() == (0, weights.max())
    for axes in panels[-3:]:
        assert labels_of(axes.xaxis) == TOKENS
        assert {label.get_rotation() for label in axes.get_xticklabels()} == {90}
    assert labels_of(panels[0].yaxis) == labels_of(panels[3].yaxis) == TOKENS[1:]


def test_layers_may_differ_in_heads():
    layers = [attention_of(2, 3, 4), attention_of(1, 3, 4, seed=1)]
    panels = panels_of(plots.attention(layers, TOKENS, TOKENS[1:]))
    assert [axes.get_title() for axes in panels] == [
        "layer 0, head 0", "layer 0, head 1", "layer 1, head 0"
    ]  # fmt: skip
    np.testing.assert_array_equal(shown_by(panels[2]), layers[1][0])


def test_a_matrix_has_one_panel():
    weights = attention_of(3, 4)
    (axes,) = panels_of(plots.alignment(weights, TOKENS, TOKENS[1:], "title"))
    np.testing.assert_array_equal(shown_by(axes), weights)
    assert labels_of(axes.xaxis) == TOKENS and labels_of(axes.yaxis) == TOKENS[1:]


@pytest.mark.parametrize("draw", [plots.attention, plots.alignment])
def test_weights_that_do_not_fit_the_tokens_are_refused(draw):
    weights = attention_of(*(1, 2) * (draw is plots.attention), 3, 4)
    with pytest.raises(InputError, match=r"4 target tokens, 3 source tokens.*Received: \("):
        draw(weights, TOKENS[1:], TOKENS)
    with pytest.raises(InputError):
        draw(np.zeros((0,)), TOKENS, TOKENS)


def spacing(labels) -> float:
    """Of successive labels the least distance, in sizes of their letters."""
    boxes = np.array([label.get_window_extent().extents for label in labels])
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    return np.abs(np.diff(centers, axis=0)).max(axis=1).min() / (labels[0].get_fontsize() / 0.72)


@pytest.mark.parametrize(("heads", "tokens"), [(1, 60), (8, 60)])
def test_tokens_of_long_sentences_do_not_run_into_each_other(heads, tokens):
    source = [f"▁source{number}" for number in range(tokens)]
    target = [f"▁target{number}" for number in range(tokens)]
    weights = attention_of(1, heads, tokens, tokens)
    figure = plots.attention(weights, source, target, "long " * 99)
    image = plots.to_image(figure)
    assert max(image.shape) < 5000
    first, last = (panels_of(figure)[place] for place in (0, -1))
    for labels in (first.get_yticklabels(), last.get_xticklabels()):
        assert len(labels) >= tokens // 3 and spacing(labels) > 1.1
        assert all(label.get_fontsize() >= 5 for label in labels)
    # Where not all are written, each is still beside its own cell.
    assert labels_of(first.yaxis) == [target[int(place)] for place in first.get_yticks()]
    assert labels_of(last.xaxis) == [source[int(place)] for place in last.get_xticks()]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (4, 1, 1, 2), (1, 5, 2, 1)])
def test_a_single_token_is_drawn(shape):
    tokens = ["</s>", "a"]
    figure = plots.attention(attention_of(*shape), tokens[: shape[3]], tokens[: shape[2]], "a\nb")
    plots.to_image(figure)
    assert len(panels_of(figure)) == shape[0] * shape[1]


def test_tokens_are_shown_as_they_are():
    """A dollar starts no formula, and what has no sign of its own is spelled out."""
    tokens = ["$_$", "\t", "▁", "{x", "_a"]
    title = "costs $_$ or $\\frac$\nkostet $_$"
    figure = plots.attention(attention_of(1, 1, 5, 5), tokens, tokens, title)
    plots.to_png(figure)
    (axes,) = panels_of(figure)
    assert labels_of(axes.xaxis) == ["$_$", "\\t", "▁", "{x", "_a"]
    assert figure.get_suptitle() == title


# Results

FIGURES = {"update": 100, "loss": 4.0, "val_loss": 3.0, "val_perplexity": 20.1, "perplexity": 50.0}
SCORES = {"accuracy": 0.25, "val_accuracy": 0.5, "val_bleu": 12.5, "val_chrf": 40.0}


def lines_of(axes):
    return [
        (line.get_linestyle(), list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.lines
    ]


def test_curves_show_each_figure_over_updates():
    run = [{**FIGURES, **SCORES}, {**FIGURES, **SCORES, "update": 200, "val_loss": 2.0}]
    loss, perplexity, accuracy, scores = panels_of(plots.curves({"run": run}))
    assert lines_of(loss) == [("-", [100, 200], [3.0, 2.0]), ("--", [100, 200], [4.0, 4.0])]
    assert lines_of(perplexity) == [("-", [100, 200], [20.1] * 2), ("--", [100, 200], [50.0] * 2)]
    assert lines_of(accuracy) == [("-", [100, 200], [50] * 2), ("--", [100, 200], [25] * 2)]
    assert lines_of(scores) == [("-", [100, 200], [12.5] * 2), ("--", [100, 200], [40.0] * 2)]
    kinds = [text.get_text() for text in scores.get_legend().get_texts()]
    assert kinds == ["BLEU", "chrF"]


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_what_a_round_lacks_is_left_out(missing):
    run = [
        {"update": 1, "val_loss": 3.0, "val_bleu": missing},
        {"update": 2, "val_loss": missing},
        {"update": 3, "val_loss": 1.0, "loss": missing},
    ]
    (loss,) = panels_of(plots.curves({"run": run}))
    assert lines_of(loss) == [("-", [1, 3], [3.0, 1.0])]
    with pytest.raises(InputError, match="no figures"):
        plots.curves({"run": run[1:2]})
    with pytest.raises(InputError, match="no figures"):
        plots.curves({})


def test_runs_are_told_apart_and_named():
    runs = {f"_run{n}": [{"update": 1, "val_bleu": n}] for n in range(20)}
    runs["without any"] = []
    figure = plots.curves(runs)
    plots.to_image(figure)
    (axes,) = panels_of(figure)
    looks = [(line.get_color(), line.get_marker()) for line in axes.lines]
    assert len(set(looks)) == 20
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(runs)
    handles = [(line.get_color(), line.get_marker()) for line in legend.get_lines()]
    assert handles[:20] == looks


@pytest.mark.parametrize("values", [[9000.0, 40.0, 6.0], [5.6, 5.5, 5.3]])
def test_perplexity_has_ticks_to_read_it_by(values):
    run = [{"update": n, "val_perplexity": value} for n, value in enumerate(values)]
    figure = plots.curves({"run": run})
    plots.to_image(figure)
    (axes,) = panels_of(figure)
    low, high = axes.get_ylim()
    ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
    read = [tick for tick in ticks if tick.label1.get_text() and low <= tick.get_loc() <= high]
    assert len(read) >= 3
    for tick in read:
        assert float(tick.label1.get_text().replace(",", "")) == pytest.approx(tick.get_loc())


def test_bleu_by_length_has_a_group_of_bars_for_each_range():
    values = {"transformer": [31.0, 28.0, 20.0], "lstm": [29.0, None, 0.0]}
    figure = plots.bleu_by_length(["1-9", "10-19", "20-"], values, "source words")
    (axes,) = panels_of(figure)
    assert labels_of(axes.xaxis) == ["1-9", "10-19", "20-"]
    assert axes.get_xlabel() == "source words"
    for bars, heights in zip(axes.containers, ([31, 28, 20], [29, 0, 0]), strict=True):
        assert [bar.get_height() for bar in bars] == heights
    centers = [[bar.get_x() + bar.get_width() / 2 for bar in bars] for bars in axes.containers]
    np.testing.assert_allclose(np.mean(centers, axis=0), [0, 1, 2], atol=1e-9)
    assert [text.get_text() for text in axes.texts] == ["31.0", "28.0", "20.0", "29.0", "–", "0.0"]
    with pytest.raises(InputError, match="lstm: a value for each of 2 ranges. Received: 1"):
        plots.bleu_by_length(["1-9", "10-"], {"lstm": [1.0]})


@pytest.mark.parametrize(
    "names",
    [
        ["narrow, greedy", "narrow, beam 2", "recurrent one, greedy", "recurrent one, beam 2"],
        ["greedy", "beam 4", "beam 4, penalty 0.6", "sampling, top-p 0.9"],
        ["MMMMWWWW " * 12],
        [f"run {number}" for number in range(12)],
    ],
    ids=lambda names: names[0][:8],
)
def test_a_legend_stands_within_its_picture(names):
    by_length = plots.bleu_by_length(["1-5", "6-"], {name: [1.0, 2.0] for name in names})
    curves = plots.curves({name: [{"update": 1, "val_loss": 2.0}] for name in names})
    for figure in (by_length, curves):
        height, width, _ = plots.to_image(figure).shape
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0
        (panel,) = [axes.get_window_extent() for axes in panels_of(figure)]
        assert box.y1 <= panel.y0 and panel.height > 0.4 * height


def test_a_mask_of_queries_is_drawn_in_rows():
    mask = np.array([[True], [False], [True]])
    (axes,) = panels_of(plots.masks({"own": mask}, ["a", "b", "c"]))
    (mesh,) = axes.collections
    filled = (mesh.get_facecolor() == to_rgba("#0072b2")).all(axis=1).reshape(3, 3)
    np.testing.assert_array_equal(filled, np.broadcast_to(mask, (3, 3)))
