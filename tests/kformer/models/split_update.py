"""Five updates and an evaluation of a small model, on however many devices; run by the tests.

Arguments: a model, a kind (one, accumulated, mirrored or workers), into how many parts, and a file
for what came out of it.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

MODEL, KIND, PARTS, FILE = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if KIND == "mirrored":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * PARTS
    )

from kformer.losses import MaskedCrossEntropy  # noqa: E402
from kformer.metrics import Perplexity, TokenAccuracy  # noqa: E402
from kformer.models import LanguageModel, Recurrent, Transformer  # noqa: E402
from kformer.optimizers import Adam  # noqa: E402
from training.devices import Devices  # noqa: E402

keras.utils.set_random_seed(1)
devices = Devices({"mirrored": "mirrored", "workers": "multi_worker"}.get(KIND, "none"))

rng = np.random.default_rng(4)


def batch(rows):
    """Random ids, each side of each row of a length of its own."""
    source, target = (rng.integers(4, 30, (rows, rng.integers(4, 9))) for _ in range(2))
    for side in (source, target):
        for row in side:
            row[rng.integers(1, len(row) + 1) :] = 0
    return source, np.where(target, np.roll(target, 1), 0), target


# Fewer rows than devices in the first and in the last batch, and uneven ones between.
BATCHES = [batch(rows) for rows in (1, 7, 5, 9, 1)]
_IDS = tf.TensorSpec((None, None), tf.int32)


def dataset(shares):
    def parts():
        for arrays in BATCHES:
            for number in shares.own:
                part = [array[number :: shares.count] for array in arrays]
                if not len(part[0]):
                    part = [np.zeros((1, 3), int)] * 3
                yield (part[0], part[1]), part[2]

    return tf.data.Dataset.from_generator(parts, output_signature=((_IDS, _IDS), _IDS))


class Norms(keras.callbacks.Callback):
    values: list[float] = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(float(self.model.optimizer.gradient_norm.numpy()))


SIZES = {"d_model": 16, "num_decoder_layers": 1, "dropout": 0.0, "dtype": "float32"}
MODELS = {
    "transformer": lambda: Transformer(30, 30, num_heads=2, d_ff=24, num_encoder_layers=1, **SIZES),
    "recurrent": lambda: Recurrent(
        30, 30, num_encoder_layers=1, bidirectional=True, attention="additive", **SIZES
    ),
    "language_model": lambda: LanguageModel(
        30, num_heads=2, d_ff=24, positions="learned", max_length=20, **SIZES
    ),
}

with devices.strategy.scope():
    model = MODELS[MODEL]()
    # An epsilon that does not blow up gradients which are rounding errors.
    optimizer = Adam(0.05, epsilon=1e-2, global_clipnorm=0.5, weight_decay=0.1, average_decay=0.9)
    model.compile(optimizer, MaskedCrossEntropy(0.1), metrics=[TokenAccuracy(), Perplexity()])
if KIND == "accumulated":
    model.accumulate = PARTS
history = model.fit(
    devices.distribute(dataset), steps_per_epoch=len(BATCHES), verbose=0, callbacks=[Norms()]
)
evaluated = model.evaluate(
    devices.distribute(dataset), steps=len(BATCHES), verbose=0, return_dict=True
)
np.savez(
    FILE,
    *model.get_weights(),
    *[variable.numpy() for variable in optimizer.variables],
    figures=[values[-1] for _, values in sorted(history.history.items())],
    evaluated=[value for _, value in sorted(evaluated.items())],
    norms=Norms.values,
)
