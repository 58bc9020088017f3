"""A SavedModel in a process without Python: what TensorFlow Serving does, as far as a machine
without TensorFlow Serving can show it.

A C program against TensorFlow's C API loads a SavedModel by the session loader, with XLA
compilation disabled as a stock server has it, and runs its default signature on raw strings.
"""

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

SOURCE = Path(__file__).parent / "loader.c"


class Reply(NamedTuple):
    """Translations of a batch, and the seconds the session took."""

    translations: list[bytes]
    scores: list[float]
    truncated: list[bool]
    seconds: float


def build(folder: Path) -> Path:
    """Compiles the program into a folder.

    Raises:
        subprocess.CalledProcessError: gcc refused; its words are in `stderr`.
    """
    import tensorflow as tf

    wheel = Path(tf.sysconfig.get_lib())
    program = folder / "loader"
    subprocess.run(
        [
            "gcc", "-O2", "-Wall", "-o", str(program), str(SOURCE), f"-I{wheel / 'include'}",
            f"-L{wheel}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2",
            f"-Wl,-rpath,{wheel}",
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return program


class NativeServer:
    """A running program that has loaded a SavedModel.

    Args:
        program: from `build`.
        savedmodel: the folder of one version.
    """

    def __init__(self, program: Path, savedmodel: Path):
        import tensorflow_text

        ops = Path(tensorflow_text.__file__).parent / "python" / "ops"
        names = _tensor_names(savedmodel)
        libraries = sorted(map(str, ops.glob("*.so")))
        self._process = subprocess.Popen(
            [str(program), str(savedmodel), *names, *libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if self._process.stdout.read(1) != b"+":
            _, error = self._process.communicate()
            raise RuntimeError(error.decode(errors="replace"))

    def translate(self, texts: Sequence[bytes]) -> Reply:
        """Runs the default signature on one batch."""
        request = struct.pack("<I", len(texts))
        request += b"".join(struct.pack("<I", len(text)) + text for text in texts)
        self._process.stdin.write(request)
        self._process.stdin.flush()
        (status,) = self._process.stdout.read(1) or (0,)
        if status != ord("+"):
            _, error = self._process.communicate()
            raise RuntimeError(error.decode(errors="replace"))
        (seconds, count) = self._read("<dI")
        rows = []
        for _ in range(count):
            score, truncated, length = self._read("<fBI")
            rows.append((self._process.stdout.read(length), score, bool(truncated)))
        translations, scores, cut = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
        return Reply(translations, scores, cut, seconds)

    def close(self) -> None:
        """Ends the program."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _read(self, layout: str):
        return struct.unpack(layout, self._process.stdout.read(struct.calcsize(layout)))


def _tensor_names(savedmodel: Path) -> list[str]:
    """Of the default signature: input, then translation, score and truncated."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((savedmodel / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    outputs = [signature.outputs[name].name for name in ("translation", "score", "truncated")]
    return [signature.inputs["text"].name, *outputs]
