"""Configurations in files: presets, files of one's own, and those of run folders."""

import dataclasses
import difflib
import math
import re
import textwrap
from pathlib import Path
from typing import Any

import docstring_parser
import jsonargparse
import yaml

from kformer.errors import InputError
from training.config.checks import check, refuse_null
from training.config.keys import SECTIONS, Config
from training.config.yaml_files import load_yaml

PRESETS = Path(__file__).resolve().parents[1] / "presets"
DEFAULT_PRESET = "small"


def add_sections(parser: jsonargparse.ArgumentParser) -> None:
    """Gives a parser an option `--section.key` for every key."""
    for name, section in SECTIONS.items():
        parser.add_argument(f"--{name}", type=section, default=section())


def config_file(preset: str) -> Path:
    """The file of a preset's name, of a run folder, or of a path that ends in .yaml or .yml.

    Raises:
        InputError: there is neither.
    """
    known = sorted(path.stem for path in PRESETS.glob("*.yaml"))
    if preset in known:
        return PRESETS / f"{preset}.yaml"
    path = Path(preset)
    if (path / "config.yaml").is_file():
        return path / "config.yaml"
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"unknown preset {preset!r}{nearest(preset, known)} Presets: {', '.join(known)}; "
            "a configuration file must end in .yaml, a run folder must hold config.yaml"
        )
    if not path.is_file():
        raise InputError(f"{path}: no such configuration file")
    return path


def read_config(path: Path) -> dict[str, Any]:
    """The nested dict in a configuration file, its sections and keys checked.

    Raises:
        InputError: it cannot be read, is no YAML, or has an unknown section or key.
    """
    content = load_yaml(path, "a configuration") or {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold sections ({', '.join(SECTIONS)}), not a {content!r}")
    for section, keys in content.items():
        if section not in SECTIONS:
            raise InputError(f"{path}: unknown section {section}{nearest(section, SECTIONS)}")
        if keys is None:  # All of its keys are commented out.
            content[section] = keys = {}
        if not isinstance(keys, dict):
            raise InputError(f"{path}: section {section} must hold keys. Received: {keys!r}")
        known = [key.name for key in dataclasses.fields(SECTIONS[section])]
        for key in keys:
            if key not in known:
                raise InputError(f"{path}: unknown key {section}.{key}{nearest(key, known)}")
        refuse_null(section, keys, f"{path}: ")
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    add_sections(parser)
    try:
        parsed = parser.parse_object(content)
    except (jsonargparse.ArgumentError, TypeError) as error:
        raise InputError(f"{path}: {explain(error)}") from error
    return {
        section: {key: parsed[section][key] for key in keys} for section, keys in content.items()
    }


def explain(error: Exception) -> str:
    """One line for what jsonargparse says in several."""
    message = re.sub(r"\s+", " ", str(error)).strip()
    message = re.sub(r'^Parser key "([^"]+)": ', r"\1: ", message)
    message = re.sub(
        r"Does not validate against any .* Errors: - (.*) Given value type: .* Given value: (.*)$",
        lambda found: f"{found[1].replace(' - Expected', ' or')}. Got value: {found[2]}",
        message,
    )
    message = (
        re.sub(r"<class '(\w+)'>", r"\1", message)
        .replace("typing.", "")
        .replace("a NoneType", "null")
    )
    return re.sub(r": Expected a Literal\[(.*?)\]( or null)?\. Got value: (.*)$", _choices, message)


def _choices(found: re.Match) -> str:
    names = found[1].replace("'", "").split(", ")
    return f" must be {' or '.join(names)}{found[2] or ''}. Received: {found[3]}"


def load_config(path: Path) -> Config:
    """The configuration in a file, defaults for what it leaves out.

    Raises:
        InputError: as `read_config` and `check`.
    """
    parsed = read_config(path)
    return check(Config(**{name: SECTIONS[name](**parsed.get(name, {})) for name in SECTIONS}))


def to_yaml(config: Config) -> str:
    """The configuration as YAML that explains itself: each key under its meaning."""
    lines = []
    for section, section_type in SECTIONS.items():
        documented = docstring_parser.parse(section_type.__doc__)
        meanings = {param.arg_name: param.description for param in documented.params}
        lines += [f"# {documented.short_description}", f"{section}:"]
        for key, value in dataclasses.asdict(getattr(config, section)).items():
            lines += [f"  # {line}" for line in textwrap.wrap(meanings[key], 92)]
            # Lists on one line, too.
            flow = None if isinstance(value, list) else False
            entry = yaml.safe_dump(
                {key: value}, allow_unicode=True, width=math.inf, default_flow_style=flow
            )
            lines.append(f"  {entry.strip()}")
        lines.append("")
    return "\n".join(lines)


def nearest(word: str, known) -> str:
    """How a sentence on a wrong name ends: with the nearest right one, if any is near."""
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else "."
