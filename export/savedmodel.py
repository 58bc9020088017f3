"""A run folder's graph as one SavedModel: raw strings in, translations out."""

import dataclasses
import json
import os
import re
import secrets
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import yaml

import kformer
from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.run_folder import RunFolder
from kformer.saved_graph import DESCRIPTION

# The function of the graph that each signature is.
SIGNATURES = {
    "serving_default": "translate",
    "translate_nbest": "translate_nbest",
    "complete": "complete",
    "score": "score",
    "attention": "attention",
    "count_tokens": "count_tokens",
    "count_target_tokens": "count_target_tokens",
}


def signatures_of(graph: TranslationGraph) -> list[str]:
    """The signatures of a graph's export; without attention there is none to ask for."""
    return [name for name in SIGNATURES if name != "attention" or graph.has_attention]


def next_version(base: Path) -> int:
    """One more than the highest version in a folder of versions; 1 where there is none."""
    if not base.is_dir():
        return 1
    names = (path.name for path in base.iterdir())
    return max((int(name) for name in names if re.fullmatch("[0-9]+", name)), default=0) + 1


def check_version(base: Path, version: int) -> None:
    """Refuses a version that is there, or that TensorFlow Serving would not look for.

    Raises:
        InputError: naming it.
    """
    if not 1 <= version < 2**63:
        raise InputError(f"--version must be from 1 to 2**63 - 1. Received: {version}")
    if (base / str(version)).exists():
        raise InputError(
            f"{base / str(version)}: exists, and versions are never replaced. Without --version "
            f"the next free one is taken: {next_version(base)}"
        )


def unfinished(base: Path) -> Path:
    """Where a version is written until it is known to be whole: no server looks there."""
    return base / f".{secrets.token_hex(4)}.partial"


def publish(partial: Path, base: Path, version: int | None) -> Path:
    """Gives a finished version its name; from then on a server that watches `base` loads it.

    Args:
        partial: the finished folder.
        base: the folder of versions.
        version: its number. None: the next free one.
    """
    if version is None:
        version = next_version(base)
    check_version(base, version)
    target = base / str(version)
    os.rename(partial, target)
    return target


def write_savedmodel(
    graph: TranslationGraph, folder: Path, description: dict[str, Any], xla: bool = False
) -> None:
    """Writes the graph's functions as signatures, and a description beside them.

    Through Keras' archive: what `tf.saved_model.save` writes of a module that holds a Keras model
    loads in Python, but not in the loader that TensorFlow Serving uses.

    Args:
        graph: what to write. Its weights are, an optimizer is not.
        folder: to make.
        description: goes into `kformer.json`.
        xla: whether to add the signature `translate_xla`.
    """
    archive = keras.export.ExportArchive()
    # Not the graph: all its functions would be written, each once more.
    resources = tf.Module()
    resources.model, resources.tokenizers = graph.model, graph.tokenizers
    archive.track(resources)
    for signature in signatures_of(graph):
        archive.add_endpoint(signature, _endpoint(getattr(graph, SIGNATURES[signature])))
    if xla:
        archive.add_endpoint("translate_xla", _endpoint(graph.translate_xla))
    archive.write_out(folder, verbose=False)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (folder / DESCRIPTION).write_text(text, "utf-8")


def describe(run: RunFolder, graph: TranslationGraph, precision: str) -> dict[str, Any]:
    """What an export is and where it comes from, for `kformer.json`."""
    meta = json.loads(run.tokens_meta.read_text("utf-8"))
    packages = ("tensorflow", "keras", "tensorflow-text")
    return {
        "versions": {"kformer": kformer.__version__}
        | {package: version_of(package) for package in packages},
        "signatures": signatures_of(graph),
        "search": {"kind": type(graph.search).__name__, **dataclasses.asdict(graph.search)},
        "of_lines": run.of_lines,
        "width": graph.width,
        "n_best": getattr(graph.search, "n_best", graph.width),
        "limits": dataclasses.asdict(graph.limits),
        "precision": precision,
        "tokenizers": [type(tokenizer).__name__ for tokenizer in graph.tokenizers],
        "corpus_fingerprint": meta["fingerprint"],
        "test_scores": json.loads(run.scores.read_text("utf-8")) if run.scores.exists() else None,
        "config": yaml.safe_load(run.config.read_text("utf-8")),
    }


def _endpoint(function):
    """A function that calls what is traced already.

    TensorFlow traces every endpoint a second time while it saves; this way that costs a call, and
    not the whole graph once more.
    """
    traced = function.get_concrete_function()
    return tf.function(
        lambda *inputs: traced(*inputs), input_signature=function.input_signature, autograph=False
    )
