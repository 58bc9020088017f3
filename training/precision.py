"""Which precision the hardware at hand is fastest in."""

import platform
from pathlib import Path

import tensorflow as tf


def resolve_precision(precision: str) -> str:
    """The Keras dtype policy for `train.precision`: itself, unless it is "auto".

    Auto is mixed_bfloat16 on GPUs from Ampere on and on CPUs that multiply bfloat16 (AMX or
    AVX512-BF16), else float32: older GPUs need loss scaling, which is for the user to choose.
    """
    if precision != "auto":
        return precision
    gpus = tf.config.list_physical_devices("GPU")
    fast = all(_is_ampere(gpu) for gpu in gpus) if gpus else _cpu_multiplies_bfloat16()
    return "mixed_bfloat16" if fast else "float32"


def _is_ampere(gpu: tf.config.PhysicalDevice) -> bool:
    capability = tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
    return capability >= (8, 0)


def _cpu_multiplies_bfloat16() -> bool:
    if platform.system() != "Linux":
        return False
    cpuinfo = Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text().split()) if cpuinfo.is_file() else set()
    return bool(flags & {"amx_bf16", "avx512_bf16"})
