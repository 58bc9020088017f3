import pytest
import tensorflow as tf

from training import precision
from training.precision import resolve_precision


@pytest.fixture
def hardware(monkeypatch):
    """Pretends the machine has GPUs of these compute capabilities, and a CPU with these flags."""

    def hardware(capabilities=(), cpu_flags=""):
        details = {f"GPU:{i}": capability for i, capability in enumerate(capabilities)}
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(details))
        monkeypatch.setattr(
            tf.config.experimental,
            "get_device_details",
            lambda gpu: {"compute_capability": details[gpu]} if details[gpu] else {},
        )
        monkeypatch.setattr(precision.platform, "system", lambda: "Linux")
        monkeypatch.setattr(precision.Path, "is_file", lambda path: True)
        monkeypatch.setattr(precision.Path, "read_text", lambda path: f"flags : fpu {cpu_flags} x")

    return hardware


@pytest.mark.parametrize(
    ("capabilities", "cpu_flags", "expected"),
    [
        ([(8, 0)], "", "mixed_bfloat16"),
        ([(9, 0)], "", "mixed_bfloat16"),
        ([(7, 5)], "amx_bf16", "float32"),
        ([(8, 6), (7, 5)], "", "float32"),
        ([None], "", "float32"),
        ([], "avx2 amx_bf16", "mixed_bfloat16"),
        ([], "avx512_bf16", "mixed_bfloat16"),
        ([], "avx2 avx512f amx_int8", "float32"),
    ],
)
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(
    hardware, capabilities, cpu_flags, expected
):
    hardware(capabilities, cpu_flags)
    assert resolve_precision("auto") == expected


@pytest.mark.parametrize("name", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("flags", ["", "amx_bf16"])
def test_an_explicit_precision_is_taken_as_it_is(hardware, name, flags):
    hardware([], flags)
    assert resolve_precision(name) == name


def test_a_system_that_tells_nothing_of_its_cpu_gets_float32(hardware, monkeypatch):
    hardware([], "amx_bf16")
    monkeypatch.setattr(precision.platform, "system", lambda: "Darwin")
    assert resolve_precision("auto") == "float32"
