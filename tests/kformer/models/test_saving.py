import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from kformer.losses import MaskedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy
from kformer.models import Recurrent

FRESH_PROCESS = """
import sys
import keras, numpy as np
import kformer.losses, kformer.metrics, kformer.models

folder = sys.argv[1]
given = np.load(f"{folder}/given.npz")
inputs = given["source"], given["target"]
model = keras.saving.load_model(f"{folder}/model.keras")
found = {"logits": model(inputs)}
found["iterations"] = model.optimizer.iterations.numpy()
for index, variable in enumerate(model.optimizer.variables):
    found[f"slot{index}"] = variable.numpy()
found["evaluated"] = model.evaluate(inputs, given["labels"], verbose=0)
found["smoothing"] = model.loss.label_smoothing
weights = kformer.models.Transformer(**{**model.get_config(), "name": "other"})
weights.load_weights(f"{folder}/model.weights.h5")
found["logits_from_weights"] = weights(inputs)
found["recurrent"] = keras.saving.load_model(f"{folder}/recurrent.keras")(inputs)
model.fit(inputs, given["labels"], batch_size=3, shuffle=False, verbose=0)
found["logits_after_fit"] = model(inputs)
np.savez(f"{folder}/found.npz", **found)
"""


def test_saved_models_come_back_whole_in_a_fresh_process(build, batch, tmp_path):
    """All in one process, as importing TensorFlow is most of the time."""
    (source, target), labels = batch
    model = build(
        norm="pre", positions="learned", max_length=9, tie="target", source_vocab_size=13,
        output_bias=True,
    )  # fmt: skip
    model.compile(
        keras.optimizers.Adam(0.01),
        loss=MaskedCrossEntropy(label_smoothing=0.1),
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=True,  # tracing would take longer than all the rest
    )
    model.fit((source, target), labels, batch_size=3, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    recurrent = Recurrent(
        13, 11, 8, cell="gru", bidirectional=True, attention="additive", input_feeding=True,
        tie="target",
    )  # fmt: skip
    recurrent.save(tmp_path / "recurrent.keras")
    np.savez(tmp_path / "given.npz", source=source, target=target, labels=labels)
    logits = model((source, target)).numpy()
    slots = [variable.numpy() for variable in model.optimizer.variables]
    evaluated = model.evaluate((source, target), labels, verbose=0)
    model.fit((source, target), labels, batch_size=3, shuffle=False, verbose=0)

    ran = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, tmp_path],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_allclose(found["logits"], logits, atol=1e-6)
    np.testing.assert_allclose(found["logits_from_weights"], logits, atol=1e-6)
    np.testing.assert_allclose(found["recurrent"], recurrent((source, target)), atol=1e-6)
    assert found["iterations"] == 2 and found["smoothing"] == 0.1
    assert len(slots) > 2 * len(model.trainable_weights)
    for index, slot in enumerate(slots):
        np.testing.assert_array_equal(found[f"slot{index}"], slot)
    assert found["evaluated"] == pytest.approx(evaluated, rel=1e-5)
    # Training goes on as it would have.
    np.testing.assert_allclose(found["logits_after_fit"], model((source, target)), atol=1e-4)


def test_weights_of_another_depth_are_refused(build, tmp_path):
    build().save_weights(tmp_path / "two.weights.h5")
    with pytest.raises(ValueError):
        build(num_encoder_layers=3).load_weights(tmp_path / "two.weights.h5")
