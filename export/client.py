"""Translate text with a TensorFlow Serving: `python -m export.client URL [FILE]`."""

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.lines import open_text, read_lines
from kformer.quiet import import_tensorflow

# Seconds before each try again, doubled every time.
_PAUSE = 0.5


class UnavailableError(Exception):
    """The server cannot answer now, and may soon."""


class Answer(NamedTuple):
    """A translation, and whether text or translation was cut at a limit."""

    translation: str
    truncated: bool


class Client(Protocol):
    """Asks one signature of one model."""

    def translate(self, texts: Sequence[str]) -> list[Answer]:
        """Translations of a batch.

        Raises:
            UnavailableError: the server may be asked again.
            InputError: it will not answer this.
        """


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m export.client",
        description="Translate lines with a model that TensorFlow Serving serves, one line out for "
        "each line in. Needs the extra: pip install 'kformer[serving]'.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "url", metavar="URL", help="http://HOST:8501/MODEL (REST) or grpc://HOST:8500/MODEL"
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="UTF-8 text; without it standard input is read"
    )
    parser.add_argument("--version", type=int, metavar="N", help="of the model; default the newest")
    parser.add_argument("--signature", default="serving_default", metavar="NAME")
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="lines a request (default 32)"
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds a request (default 60)"
    )
    parser.add_argument(
        "--retries", type=int, default=5, metavar="N",
        help="tries again while the server is unavailable (default 5)",
    )  # fmt: skip
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.batch_size < 1:
        raise InputError(f"--batch-size must be at least 1. Received: {options.batch_size}")
    if options.retries < 0:
        raise InputError(f"--retries must not be negative. Received: {options.retries}")
    if not 0 < options.timeout <= 86_400:
        raise InputError(f"--timeout must be above 0, a day at most. Received: {options.timeout}")
    if options.version is not None and not 0 <= options.version < 2**63:
        raise InputError(f"--version must be from 0 to 2**63 - 1. Received: {options.version}")
    client = connect(options.url, options.version, options.signature, options.timeout)
    with open_text(options.file) as stream:
        lines = read_lines(stream, options.file or "standard input")
        done = 0
        while batch := list(islice(lines, options.batch_size)):
            answers = retrying(lambda batch=batch: client.translate(batch), options.retries)
            sys.stdout.buffer.write("".join(f"{text}\n" for text, _ in answers).encode())
            sys.stdout.buffer.flush()
            for number, answer in enumerate(answers, start=done + 1):
                if answer.truncated:
                    print(f"line {number}: cut at a limit of the model", file=sys.stderr)
            done += len(batch)
    return 0


def connect(
    url: str,
    version: int | None = None,
    signature: str = "serving_default",
    timeout: float = 60.0,
) -> Client:
    """A client of a model on a server.

    Args:
        url: `http://HOST:PORT/MODEL`, `https://...` or `grpc://HOST:PORT/MODEL`.
        version: of the model. None: the newest.
        signature: one from text to translation.
        timeout: seconds a request may take.

    Raises:
        InputError: the URL has another form, or the extra `serving` is missing.
    """
    parts = re.fullmatch(r"(https?|grpc)://([^/]+)/(?:v1/models/)?([^/]+)/?", url)
    if not parts:
        raise InputError(
            f"{url}: give http://HOST:8501/MODEL or grpc://HOST:8500/MODEL, with the name that "
            "models.config gives the model"
        )
    scheme, host, model = parts.groups()
    try:
        if scheme == "grpc":
            return _GrpcClient(host, model, version, signature, timeout)
        return _RestClient(f"{scheme}://{host}", model, version, signature, timeout)
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed. Run: pip install 'kformer[serving]'"
        ) from error


def retrying(ask: Callable[[], list[Answer]], retries: int, pause: float = _PAUSE) -> list[Answer]:
    """What `ask` gives, asked again while the server is unavailable.

    Raises:
        InputError: it still is after so many retries.
    """
    for attempt in range(retries + 1):
        try:
            return ask()
        except UnavailableError as error:
            if attempt == retries:
                raise InputError(f"{error} (tried {retries + 1} times)") from error
            time.sleep(pause * 2**attempt)
    raise AssertionError("unreachable")


class _RestClient:
    def __init__(self, server, model, version, signature, timeout):
        import requests

        self._requests = requests
        self._session = requests.Session()
        of_version = "" if version is None else f"/versions/{version}"
        self._url = f"{server}/v1/models/{model}{of_version}:predict"
        self._signature, self._timeout = signature, timeout

    def translate(self, texts: Sequence[str]) -> list[Answer]:
        request = {"signature_name": self._signature, "inputs": {"text": list(texts)}}
        try:
            response = self._session.post(self._url, json=request, timeout=self._timeout)
        except self._requests.exceptions.Timeout as error:
            raise UnavailableError(f"{self._url}: no answer in {self._timeout:g} s") from error
        except self._requests.exceptions.ConnectionError as error:
            raise UnavailableError(f"{self._url}: no server answers there") from error
        except self._requests.exceptions.RequestException as error:
            raise InputError(f"{self._url}: {' '.join(str(error).split())}") from error
        if response.status_code == 503:
            raise UnavailableError(f"{self._url}: unavailable ({_error(response)})")
        if not response.ok:
            raise InputError(f"{self._url}: {response.status_code}, {_error(response)}")
        try:
            outputs = response.json()["outputs"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self._url}: answers, but not as TensorFlow Serving does") from error
        return _answers(outputs, self._signature)


class _GrpcClient:
    def __init__(self, host, model, version, signature, timeout):
        import_tensorflow()
        import grpc
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        self._grpc = grpc
        self._host, self._timeout = host, timeout
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(host))
        self._request = predict_pb2.PredictRequest()
        self._request.model_spec.name = model
        self._request.model_spec.signature_name = signature
        if version is not None:
            self._request.model_spec.version.value = version

    def translate(self, texts: Sequence[str]) -> list[Answer]:
        import tensorflow as tf

        self._request.inputs["text"].CopyFrom(tf.make_tensor_proto(list(texts), tf.string))
        try:
            response = self._stub.Predict(self._request, timeout=self._timeout)
        except self._grpc.RpcError as error:
            message = f"grpc://{self._host}: {error.code().name}, {error.details()}"
            codes = self._grpc.StatusCode
            if error.code() in (codes.UNAVAILABLE, codes.DEADLINE_EXCEEDED):
                raise UnavailableError(message) from error
            raise InputError(message) from error
        outputs = {
            name: tf.make_ndarray(proto).tolist() for name, proto in response.outputs.items()
        }
        if "translation" in outputs:
            outputs["translation"] = [
                text.decode() if isinstance(text, bytes) else text
                for text in outputs["translation"]
            ]
        return _answers(outputs, self._request.model_spec.signature_name)


def _answers(outputs, signature: str) -> list[Answer]:
    translations = outputs.get("translation") if isinstance(outputs, dict) else None
    if not translations or not isinstance(translations[0], str):
        raise InputError(f"signature {signature} gives no translation a text; serving_default does")
    cut = outputs.get("truncated", [False] * len(translations))
    return [Answer(*answer) for answer in zip(translations, cut, strict=True)]


def _error(response) -> str:
    """What the server says, on one line."""
    try:
        text = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        text = response.text
    return " ".join(str(text).split())[:300]


if __name__ == "__main__":
    sys.exit(main())
