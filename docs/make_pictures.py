"""Draws the pictures of docs/pictures.md once more: `python docs/make_pictures.py RUN`.

RUN is a run folder, such as `python -m training.run` leaves it; without one, only the pictures that
need no model are drawn.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from kformer import plots
from kformer.ids import PAD_ID
from kformer.layers import causal_mask, padding_mask
from kformer.layers.embedding import sinusoidal_positions
from kformer.losses import token_cross_entropy
from kformer.run_folder import RunFolder
from kformer.schedules import InverseSqrtSchedule, LinearSchedule, NoamSchedule
from kformer.search import Beam
from kformer.translator import Translator

FOLDER = Path(__file__).parent / "pictures"
SENTENCE = "Enter or edit general information for an XML filter."


def main(run: str | None = None) -> None:
    FOLDER.mkdir(exist_ok=True)
    save(plots.positions(sinusoidal_positions(tf.range(100), 128)), "positions")
    save(draw_masks(), "masks")
    save(draw_schedules(), "schedules")
    save(draw_label_smoothing(), "label_smoothing")
    if run is not None:
        save(draw_attention(run), "attention")
        lines = RunFolder.open(run).metrics.read_text("utf-8").splitlines()
        save(plots.curves({"small": [json.loads(line) for line in lines]}), "curves")


def save(figure, name: str) -> None:
    plots.save(figure, FOLDER / f"{name}.png")


def draw_masks():
    """A target of five tokens, padded to seven."""
    tokens = ["<s>", "▁Klicken", "▁Sie", "▁auf", "▁Ja", "<pad>", "<pad>"]
    ids = tf.constant([[2, 11, 12, 13, 14, PAD_ID, PAD_ID]])
    padding, causal = padding_mask(ids), causal_mask(ids)
    both = tf.logical_and(padding, causal)
    return plots.masks({"padding": padding, "causal": causal, "both": both}, tokens)


def draw_schedules():
    """Three ways to the same peak, that of the paper's base model."""
    noam = NoamSchedule(d_model=512, warmup_updates=4000)
    peak = float(noam(3999))
    schedules = {
        "Noam, d_model 512, warm-up 4,000": noam,
        f"inverse square root, peak {peak:.1g}, warm-up 1,000": InverseSqrtSchedule(peak, 1000),
        f"linear, peak {peak:.1g}, 20,000 updates": LinearSchedule(peak, 2000, 20_000),
    }
    steps = tf.range(20_000)
    return plots.schedules({name: schedule(steps) for name, schedule in schedules.items()})


def draw_label_smoothing():
    """What the loss pulls a model to that holds all tokens equally likely."""
    tokens = ["das", "Feld", "Filter", "Haus", "ist", "Ja", "klein", "rot", "zu", "</s>"]
    labels = tf.constant([[tokens.index("Haus")]])
    targets = {}
    for smoothing in (0.0, 0.1, 0.3):
        logits = tf.zeros([1, 1, len(tokens)])
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = token_cross_entropy(labels, logits, smoothing)
        # The gradient by the logits is what is predicted less what is wanted.
        wanted = tf.nn.softmax(logits) - tape.gradient(loss, logits)
        targets[f"smoothing {smoothing:g}"] = np.round(wanted[0, 0], 6)
    return plots.label_smoothing(targets, tokens)


def draw_attention(run: str):
    translator = Translator.from_run(run, Beam(size=4, length_penalty=0.6))
    (translation,) = translator.translate([SENTENCE])
    (maps,) = translator.attention_maps([SENTENCE], [translation])
    title = f"{SENTENCE}\n{translation}"
    return plots.attention(maps.weights, maps.source_tokens, maps.target_tokens, title)


if __name__ == "__main__":
    main(*sys.argv[1:])
