"""The client against servers that speak the real protocols.

They are not TensorFlow Serving: what they answer is made here. This tests the client only.
"""

import json
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from export import client

TEXTS = ["one two", "", "größe 😀", "x" * 1000]


class Model:
    """What both servers serve: texts in capitals, after so many refusals."""

    def __init__(self):
        self.refusals = 0
        self.batches = []
        self.versions = []

    def answer(self, name, signature, version, texts):
        """(status, message or translations)"""
        if self.refusals:
            self.refusals -= 1
            return "UNAVAILABLE", "the queue is full"
        if name != "upper":
            return "NOT_FOUND", f"Servable not found for request: Latest({name})"
        if signature not in ("serving_default", "lengths"):
            return "INVALID_ARGUMENT", f'Serving signature name: "{signature}" not found'
        self.batches.append(len(texts))
        self.versions.append(version)
        if signature == "lengths":
            return "OK", {"tokens": [len(text) for text in texts]}
        return "OK", {
            "translation": [text.upper() for text in texts],
            "truncated": [len(text) > 500 for text in texts],
        }


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def rest(model):
    codes = {"OK": 200, "UNAVAILABLE": 503, "NOT_FOUND": 404, "INVALID_ARGUMENT": 400}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):  # noqa: N802  (the name that http.server calls)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.removeprefix("/v1/models/").removesuffix(":predict").split("/")
            version = int(path[2]) if len(path) == 3 else None
            status, answer = model.answer(
                path[0], body["signature_name"], version, body["inputs"]["text"]
            )
            if status == "OK":
                # One output is not under its name: that is what TensorFlow Serving does.
                answer = {"outputs": answer}
            content = json.dumps(answer if status == "OK" else {"error": answer}).encode()
            self.send_response(codes[status])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # Looked for that often, the end of a server does not take half a second.
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def rpc(model):
    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802  (the name of the real service)
            spec = request.model_spec
            texts = [text.decode() for text in tf.make_ndarray(request.inputs["text"])]
            version = spec.version.value if spec.HasField("version") else None
            status, answer = model.answer(spec.name, spec.signature_name, version, texts)
            if status != "OK":
                context.abort(grpc.StatusCode[status], answer)
            response = predict_pb2.PredictResponse()
            for name, values in answer.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture(params=["rest", "rpc"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def run(tmp_path, capsysbinary, monkeypatch):
    monkeypatch.setattr(client, "_PAUSE", 0.01)
    monkeypatch.setattr(client.retrying, "__defaults__", (0.01,))

    def run(url, *options, content=None):
        path = tmp_path / "input.txt"
        path.write_bytes("\n".join(TEXTS).encode() if content is None else content)
        status = client.main([url, str(path), *options])
        out, err = capsysbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def test_lines_come_back_translated_in_order(run, server, model):
    status, out, err = run(f"{server}/upper", "--batch-size=3", "--version=4")
    assert (status, err) == (0, "line 4: cut at a limit of the model\n")
    assert out == "".join(f"{text.upper()}\n" for text in TEXTS)
    assert model.batches == [3, 1] and model.versions == [4, 4]


def test_an_unavailable_server_is_asked_again(run, server, model):
    model.refusals = 3
    assert run(f"{server}/upper")[0] == 0
    model.refusals = 3
    status, _, err = run(f"{server}/upper", "--retries=2")
    assert status == 2 and "the queue is full" in err and "tried 3 times" in err


def test_a_missing_model_is_named_and_not_asked_again(run, server, model):
    status, _, err = run(f"{server}/lower")
    assert status == 2 and err.count("\n") == 1 and "not found" in err and "lower" in err


def test_a_missing_signature_is_named(run, server):
    status, _, err = run(f"{server}/upper", "--signature=poem")
    assert status == 2 and err.count("\n") == 1 and '"poem" not found' in err


def test_a_signature_without_translations_is_named(run, server):
    status, _, err = run(f"{server}/upper", "--signature=lengths")
    assert status == 2 and "signature lengths gives no translation" in err


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_no_server_at_all_is_named(run, scheme):
    status, _, err = run(f"{scheme}://127.0.0.1:1/upper", "--retries=1")
    assert status == 2 and "127.0.0.1:1" in err and "tried 2 times" in err


@pytest.mark.parametrize("url", ["localhost:8501", "ftp://host/model", "http://host:8501"])
def test_another_kind_of_url_is_refused_with_an_example(run, url):
    status, _, err = run(url)
    assert status == 2 and "http://HOST:8501/MODEL" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retries=-1"], "--retries must not be negative"),
        (["--timeout=0"], "--timeout must be above 0"),
        (["--timeout=nan"], "--timeout must be above 0"),
        (["--version=99999999999999999999"], "--version must be from 0"),
    ],
)
def test_options_out_of_range_are_named(run, server, options, message):
    status, _, err = run(f"{server}/upper", *options)
    assert status == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize("url", ["http://localhost:99999/m", "http://[::1/m"])
def test_a_url_that_cannot_be_is_named(run, url):
    status, _, err = run(url, "--retries=0")
    assert status == 2 and err.startswith("error: http") and err.count("\n") == 1


def test_bad_input_is_named_by_its_line(run, rest):
    status, _, err = run(f"{rest}/upper", content=b"one\n\xff\n")
    assert status == 2 and "input.txt, line 2: not UTF-8" in err
    assert run(f"{rest}/upper", "--batch-size=0")[0] == 2
