"""What TensorBoard shows of a run beside its curves: settings and embeddings."""

import dataclasses

import tensorflow as tf
from tensorboard.plugins import projector
from tensorboard.plugins.hparams import api as hparams

from kformer.layers import PositionalEmbedding
from kformer.models.base import SequenceModel
from kformer.run_folder import RunFolder
from kformer.text import Tokenizers
from training.config import Config

# The browser draws each point.
_MOST_POINTS = 10_000


def write_settings(writer: tf.summary.SummaryWriter, config: Config, name: str) -> None:
    """Writes every key of a run for the dashboard that compares runs by their settings.

    Args:
        writer: of its event files.
        config: of the run.
        name: of the run.
    """
    settings = {
        f"{section}.{key}": value if isinstance(value, bool | int | float | str) else str(value)
        for section, keys in dataclasses.asdict(config).items()
        for key, value in keys.items()
    }
    with writer.as_default():
        hparams.hparams(settings, trial_id=name)


def write_embeddings(run: RunFolder, model: SequenceModel, tokenizers: Tokenizers) -> None:
    """Writes a model's embeddings, named by their pieces, for the projector.

    Args:
        run: whose logs they go beside; what is there is replaced.
        model: whose embeddings.
        tokenizers: of the model.
    """
    config = projector.ProjectorConfig()
    tables = {}
    for layer in model.layers:
        if not isinstance(layer, PositionalEmbedding):
            continue
        tables[layer.name] = tf.Variable(layer.embedding[:_MOST_POINTS])
        side = tokenizers.source if layer.name.startswith("source") else tokenizers.target
        run.logs.mkdir(exist_ok=True)
        names = run.logs / f"{layer.name}.tsv"
        # One column has no heading.
        names.write_text("".join(f"{piece}\n" for piece in side.pieces()[:_MOST_POINTS]), "utf-8")
        config.embeddings.add(
            tensor_name=f"{layer.name}/.ATTRIBUTES/VARIABLE_VALUE", metadata_path=names.name
        )
    # `save` notes the newest by a relative name, so that the folder can be moved.
    tf.train.CheckpointManager(
        tf.train.Checkpoint(**tables), str(run.logs), max_to_keep=1, checkpoint_name="embeddings"
    ).save()
    projector.visualize_embeddings(str(run.logs), config)
