"""What TensorBoard is given beside curves, read back as TensorBoard reads it."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.projector import ProjectorConfig

from kformer.run_folder import RunFolder
from kformer.text import Tokenizers, WordTokenizer
from training.board import write_embeddings, write_settings
from training.config import Config, DataConfig

WORDS = WordTokenizer.learn(["alpha beta gamma delta"])


def test_every_setting_of_a_run_can_be_read(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    write_settings(writer, Config(data=DataConfig(train=["a.tsv", "b.tsv"])), "mine")
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (metadata,) = [events.SummaryMetadata(tag) for tag in ("_hparams_/session_start_info",)]
    data = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
    settings = data.session_start_info.hparams
    assert settings["train.learning_rate"].number_value == pytest.approx(5e-3)
    assert settings["model.kind"].string_value == "transformer"
    assert settings["data.strict"].bool_value is False
    assert settings["data.train"].string_value == "['a.tsv', 'b.tsv']"
    assert data.session_start_info.group_name


@pytest.mark.parametrize("tie", ["all", "none"])
def test_the_projector_finds_each_embedding_with_its_pieces(tmp_path, random_transformer, tie):
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    model = random_transformer(WORDS.vocab_size, tie=tie)
    write_embeddings(run, model, Tokenizers(WORDS, WORDS))
    write_embeddings(run, model, Tokenizers(WORDS, WORDS))  # As a run that goes on does.
    moved = run.path.rename(tmp_path / "moved") / "logs"
    config = ProjectorConfig()
    text_format.Parse((moved / "projector_config.pbtxt").read_text(), config)
    tables = {"target_embedding": model.target_embedding}
    if tie == "none":
        tables["source_embedding"] = model.source_embedding
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(moved))
    assert len(config.embeddings) == len(tables)
    for embedding in config.embeddings:
        layer = tables.pop(embedding.tensor_name.partition("/")[0])
        np.testing.assert_array_equal(
            reader.get_tensor(embedding.tensor_name), layer.embedding.numpy()
        )
        assert (moved / embedding.metadata_path).read_text().splitlines() == WORDS.pieces()
