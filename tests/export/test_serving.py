"""The files beside a SavedModel, read back as a server reads them."""

import pytest
import tensorflow as tf
import yaml
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from export.serving import write_server_files


def test_the_models_config_is_one_that_a_server_reads(exported):
    base = exported["words", "beam"]
    config = text_format.Parse(
        (base / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("run", "/models/run")
    assert model.model_version_policy.latest.num_versions == 2


def test_the_compose_file_starts_a_server_with_the_files_beside_it(exported):
    base = exported["subwords", "greedy"]
    service = yaml.safe_load((base / "compose.yaml").read_text())["services"]["serving"]
    assert service["image"].startswith("tensorflow/serving:2.2")
    (volume,) = service["volumes"]
    mounted = volume.split(":")[1]
    files = [word.split("=")[1] for word in service["command"] if f"={mounted}/" in word]
    assert len(files) == 3
    for file in files:
        assert (base / file.removeprefix(f"{mounted}/")).is_file()


@pytest.mark.parametrize(
    ("name", "served"), [("a: b", "a-b"), ('a"b', "a-b"), ("Größe 2", "Gr-e-2"), ("...", "model")]
)
def test_names_are_made_such_as_servers_take(tmp_path, name, served):
    write_server_files(tmp_path, name)
    config = text_format.Parse(
        (tmp_path / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    assert config.model_config_list.config[0].name == served
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert services["serving"]["volumes"] == [f".:/models/{served}:ro"]


def test_files_that_somebody_changed_stay(tmp_path):
    write_server_files(tmp_path, "mine")
    (tmp_path / "batching.config").write_text("max_batch_size { value: 8 }\n")
    write_server_files(tmp_path, "other")
    assert (tmp_path / "batching.config").read_text() == "max_batch_size { value: 8 }\n"
    assert '"mine"' in (tmp_path / "models.config").read_text()


def test_warm_up_requests_run_on_the_model(version, signatures):
    file = version / "assets.extra" / "tf_serving_warmup_requests"
    sizes = []
    for record in tf.data.TFRecordDataset(str(file)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        inputs = {name: tf.constant(tf.make_ndarray(p)) for name, p in request.inputs.items()}
        output = signatures[request.model_spec.signature_name](**inputs)
        sizes.append(output["translation"].shape[0])
    assert sizes == [1, 4, 32]
