"""The YAML of an experiment: what it holds, before it is known what that means."""

from pathlib import Path
from typing import Any

import yaml

from kformer.errors import InputError
from training.config import nearest
from training.config.yaml_files import load_yaml

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"

_KEYS = {
    "title": str,
    "question": str,
    "base": str,
    "needs": dict,
    "settings": dict,
    "seeds": list,
    "variants": dict,
    "searches": dict,
    "lengths": list,
}
_NAMES = {str: "text", dict: "keys with values", list: "a list"}


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is given twice is a mistake, not a correction."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            # What cannot be a key is told by YAML's own.
            if isinstance(key, str | int | float | None):
                if key in seen:
                    line = key_node.start_mark.line + 1
                    raise yaml.YAMLError(f"{key} is given twice, again in line {line}")
                seen.add(key)
        return super().construct_mapping(node, deep)


def experiment_file(experiment: str) -> Path:
    """The file of a shipped experiment's name, or of a path that ends in .yaml or .yml.

    Raises:
        InputError: there is neither.
    """
    known = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
    if experiment in known:
        return EXPERIMENTS / f"{experiment}.yaml"
    path = Path(experiment)
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"unknown experiment {experiment!r}{nearest(experiment, known)} Experiments: "
            f"{', '.join(known)}; a file of your own must end in .yaml"
        )
    if not path.is_file():
        raise InputError(f"{path}: no such experiment file")
    return path


def read_yaml(path: Path) -> dict[str, Any]:
    """The content of an experiment file, its top keys and their kinds checked.

    Raises:
        InputError: it cannot be read, is no YAML, or has an unknown key or one of another kind.
    """
    content = load_yaml(path, "an experiment", _Loader)
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold keys ({', '.join(_KEYS)}). Received: {content!r}")
    for key, value in content.items():
        if key not in _KEYS:
            raise InputError(f"{path}: unknown key {key}{nearest(key, _KEYS)}")
        if not isinstance(value, _KEYS[key]):
            raise InputError(f"{path}: {key} must be {_NAMES[_KEYS[key]]}. Received: {value!r}")
    return content


def named_groups(path: Path, key: str, content: dict[Any, Any]) -> dict[str, dict[str, Any]]:
    """Variants or searches: names, each with keys of its own.

    Args:
        path: of the file, for errors.
        key: what they are called there.
        content: as read; a name without anything has no keys.

    Raises:
        InputError: there is none, a name is no text, or a name holds something else.
    """
    if not content:
        raise InputError(f"{path}: {key} must name at least one")
    groups = {}
    for name, keys in content.items():
        if isinstance(name, bool) or not isinstance(name, str | int | float) or not str(name):
            raise InputError(
                f"{path}: {key}: a name must be text, in quotes where YAML reads something else. "
                f"Received: {name!r}"
            )
        if not isinstance(keys, dict | None):
            raise InputError(f"{path}: {key}: {name} must hold keys. Received: {keys!r}")
        if str(name) in groups:
            raise InputError(f"{path}: {key}: {name} is given twice, as a number and as text")
        groups[str(name)] = keys or {}
    return groups
