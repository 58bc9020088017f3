"""What figures depend on beside the settings: the machine and the versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kformer import __version__


def environment() -> dict[str, str]:
    """The processor, the system and the versions of what computes."""
    packages = {"kformer": __version__}
    for name in ("tensorflow", "keras", "tensorflow-text", "sacrebleu", "numpy"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:  # It goes by another name, such as tensorflow-cpu.
            continue
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {number}" for name, number in packages.items()),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
