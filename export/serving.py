"""What a TensorFlow Serving installation wants beside a SavedModel. For 2.20 and newer."""

import re
from collections.abc import Sequence
from pathlib import Path

# Rows of the warm-up requests: a single text, a few, a full batch.
_BATCHES = (1, 4, 32)

_MODELS = """\
# Which models a server offers: tensorflow_model_server --model_config_file=models.config
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
    # Two versions stay loaded, so that a client can ask for the one before: rollback is a request
    # for it, or the deletion of the newer folder.
    model_version_policy {{ latest {{ num_versions: 2 }} }}
  }}
}}
"""

_BATCHING = """\
# How requests that come together are translated together:
# tensorflow_model_server --enable_batching --batching_parameters_file=batching.config
max_batch_size { value: 64 }
# A request waits this long for others: a small part of what one translation takes.
batch_timeout_micros { value: 5000 }
# Batches that may wait before requests are refused as UNAVAILABLE.
max_enqueued_batches { value: 100 }
num_batch_threads { value: 2 }
"""

_MONITORING = """\
# Figures for Prometheus at http://HOST:8501/monitoring/prometheus/metrics:
# tensorflow_model_server --monitoring_config_file=monitoring.config
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""

_COMPOSE = """\
# docker compose up: gRPC on port 8500, REST on 8501.
services:
  serving:
    image: tensorflow/serving:2.20.0
    ports:
      - "8500:8500"
      - "8501:8501"
    volumes:
      - .:/models/{name}:ro
    entrypoint: tensorflow_model_server
    command:
      - --port=8500
      - --rest_api_port=8501
      - --model_config_file=/models/{name}/models.config
      - --model_config_file_poll_wait_seconds=60
      - --monitoring_config_file=/models/{name}/monitoring.config
      - --enable_batching
      - --batching_parameters_file=/models/{name}/batching.config
"""


def write_server_files(base: Path, name: str) -> None:
    """Writes models, batching and monitoring configuration and a compose file into the folder of
    versions, where there are none: what somebody has changed stays.

    Args:
        base: the folder of versions.
        name: what the server calls the model; other characters than letters, digits, - and _
            become -.
    """
    # What a server, YAML and a URL all take as a name.
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "model"
    for file, content in {
        "models.config": _MODELS.format(name=name),
        "batching.config": _BATCHING,
        "monitoring.config": _MONITORING,
        "compose.yaml": _COMPOSE.format(name=name),
    }.items():
        if not (base / file).exists():
            (base / file).write_text(content, "utf-8")


def write_warm_up(folder: Path, texts: Sequence[str]) -> str:
    """Writes requests that a server runs before it says that a version is ready.

    Args:
        folder: of the version.
        texts: sentences of several lengths.

    Returns:
        What was done, in words: without the extra `serving` there are none.
    """
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        return "none: pip install 'kformer[serving]' writes requests"
    import tensorflow as tf

    ordered = sorted(texts, key=len)
    extra = folder / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        for rows in _BATCHES:
            # Spread from the shortest text to the longest.
            batch = [ordered[index * len(ordered) // rows] for index in range(rows)]
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = "serving_default"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(batch, tf.string))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())
    return f"{len(_BATCHES)} requests of {', '.join(map(str, _BATCHES))} texts"
