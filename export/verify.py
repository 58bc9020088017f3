"""Does an export translate, where the project is not installed, as the run does?"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tensorflow.core.protobuf import saved_model_pb2

# Beyond TensorFlow's own, the operations that every stock TensorFlow Serving links. Others of
# TensorFlow Text are newer than some servers in use.
_TEXT_OPS = {
    "NormalizeUTF8", "SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp",
}  # fmt: skip
# Python, which no server has.
_PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}

_PROGRAM = Path(__file__).parent / "verify_alone.py"


class VerificationError(Exception):
    """An export does not do what the run does; the message says what."""


def verify(folder: Path, texts: Sequence[str], expected: Sequence[str]) -> None:
    """Checks a SavedModel from outside.

    A fresh Python process, in which kformer cannot be imported, loads it twice, as Python does and
    by the session loader as a server does, and translates texts.

    Args:
        folder: of the SavedModel.
        texts: to translate.
        expected: their translations.

    Raises:
        VerificationError: saying what failed.
    """
    done = subprocess.run(
        [sys.executable, "-I", str(_PROGRAM), str(folder.resolve())],
        input=json.dumps(list(texts)), capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise VerificationError(f"a fresh process cannot use it: {last[0]}")
    for loader, translations in json.loads(done.stdout.splitlines()[-1]).items():
        for number, (got, wanted) in enumerate(zip(translations, expected, strict=True), start=1):
            if got != wanted:
                raise VerificationError(
                    f"text {number} translates to {got!r} by {loader}, and to {wanted!r} in the run"
                )


def check_operations(folder: Path) -> None:
    """Refuses operations that a stock server does not have, or will not run.

    Raises:
        VerificationError: naming them.
    """
    import tensorflow as tf

    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (graph,) = (graph.graph_def for graph in saved.meta_graphs)
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = [*graph.node, *(node for f in functions.values() for node in f.node_def)]
    used = {node.op for node in nodes} - set(functions)
    strange = {op for op in used if not hasattr(tf.raw_ops, op)} - _TEXT_OPS
    strange |= used & _PYTHON_OPS
    if strange:
        raise VerificationError(
            f"operations that a stock server lacks: {', '.join(sorted(strange))}"
        )
    compiled = {name for name, f in functions.items() if f.attr["_XlaMustCompile"].b}
    for name, signature in saved.meta_graphs[0].signature_def.items():
        outputs = {output.name.split(":")[0] for output in signature.outputs.values()}
        found = compiled & _reachable(graph.node, functions, outputs)
        if found and name != "translate_xla":
            raise VerificationError(f"signature {name} must be compiled by XLA: {min(found)}")


def _reachable(nodes, functions, names: set[str]) -> set[str]:
    """All functions that the operations of these names call, in the end."""
    by_name = {node.name: node for node in nodes}
    waiting, seen, called = list(names), set(), set()
    bodies = []
    while waiting:
        name = waiting.pop().split(":")[0].lstrip("^")
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        waiting += by_name[name].input
        bodies.append(by_name[name])
    while bodies:
        for attribute in bodies.pop().attr.values():
            for function in [attribute.func, *attribute.list.func]:
                if function.name and function.name not in called:
                    called.add(function.name)
                    bodies += functions[function.name].node_def
    return called
