"""YAML from files that people write."""

from pathlib import Path
from typing import Any

import yaml

from kformer.errors import InputError


def load_yaml(path: Path, what: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The content of a file.

    Args:
        path: of the file.
        what: it should be, in words: "a configuration".
        loader: a safe one.

    Raises:
        InputError: it cannot be read or is no YAML.
    """
    try:
        return yaml.load(path.read_text("utf-8"), loader)
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be {what}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
