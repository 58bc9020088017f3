"""Pictures of attention for TensorBoard."""

import keras
import tensorflow as tf

from kformer import plots
from kformer.translator import TextTooLongError, Translator
from training.callbacks.samples import Samples


class AttentionPictures(keras.callbacks.Callback):
    """Draws after each round what every layer and head attends to, in the shortest of the sample
    sentences and their references: the same words each time.

    Args:
        writer: of the event files.
        translator: of the model in training, which has attention.
        samples: the sentences to choose from.
    """

    MOST = 2

    def __init__(self, writer: tf.summary.SummaryWriter, translator: Translator, samples: Samples):
        super().__init__()
        self.writer = writer
        self.translator = translator
        pairs = zip(samples.sources, samples.references, strict=True)
        self.pairs = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))[: self.MOST]

    def on_epoch_end(self, epoch, logs=None):
        with self.writer.as_default(step=logs["update"]):
            for number, (source, reference) in enumerate(self.pairs, 1):
                try:
                    (maps,) = self.translator.attention_maps([source], [reference])
                except TextTooLongError:
                    continue  # Longer than learned positions: nothing to draw.
                figure = plots.attention(maps.weights, maps.source_tokens, maps.target_tokens)
                image = plots.to_image(figure)[tf.newaxis]
                tf.summary.image(f"attention/{number}", image, description=f"{source}: {reference}")
