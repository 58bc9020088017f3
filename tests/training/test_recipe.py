"""Pictures of how a run is set up."""

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from training.config import Config
from training.recipe import write_recipe


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_each_picture_can_be_read(random_transformer, tmp_path, positions):
    writer = tf.summary.create_file_writer(str(tmp_path))
    write_recipe(writer, Config(), random_transformer(9, positions=positions, max_length=20))
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = {"recipe/masks", "recipe/learning_rate", "recipe/label_smoothing"}
    if positions != "rotary":
        tags.add("recipe/positions")  # Rotary ones are no table.
    assert set(events.Tags()["tensors"]) == tags
    for tag in tags:
        _, _, image = tf.make_ndarray(events.Tensors(tag)[0].tensor_proto)
        assert tf.io.decode_png(image).shape[0] > 100
