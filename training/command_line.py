"""Command-line options made from the configuration."""

import dataclasses
import re
from typing import Any

import jsonargparse

from kformer.errors import InputError
from training.config import (
    PRESETS,
    SECTIONS,
    Config,
    add_sections,
    check,
    config_file,
    explain,
    foreign_keys,
    nearest,
    read_config,
)


def parse_config(
    parser: jsonargparse.ArgumentParser, arguments: list[str], default_preset: str
) -> tuple[Config, jsonargparse.Namespace]:
    """Reads a command line of a preset or configuration file and options `--section.key value`.

    Args:
        parser: one with `exit_on_error=False` and the command's own options; gains a positional
            argument `config` and the options of all sections.
        arguments: the command line's words.
        default_preset: the preset where the command line names none.

    Returns:
        The checked configuration, and all that was parsed.

    Raises:
        InputError: an unknown preset, key or option, or a value of the wrong type or out of range.
    """
    parser.add_argument(
        "config",
        nargs="?",
        default=default_preset,
        metavar="PRESET|CONFIG.yaml",
        help="a preset's name, or a file of keys that differ from the defaults",
    )
    add_sections(parser)
    try:
        given = parser.parse_args(arguments)
        file = config_file(given.config)
        content = read_config(file)
        if file.parent == PRESETS:
            # Its sizes are of its own kind of model; another has none of some.
            for key in foreign_keys(given.model.kind):
                content.get("model", {}).pop(key, None)
        parser.set_defaults(_dotted(content))
        parsed = parser.parse_args(arguments)
    except (jsonargparse.ArgumentError, TypeError) as error:
        raise InputError(_explain(error)) from error
    sections = {name: SECTIONS[name](**vars(parsed[name])) for name in SECTIONS}
    return check(Config(**sections)), parsed


def _dotted(content: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        f"{section}.{key}": value for section in content for key, value in content[section].items()
    }


def _explain(error: Exception) -> str:
    """One line for what jsonargparse says of a command line, with the nearest right name."""
    message = explain(error)
    message = re.sub(r"^(\w+\.\w+)(: | must be )", r"--\1\2", message)
    message = message.removeprefix("argument ")
    unknown = re.search(r"[Uu]nrecognized arguments: (--[\w.-]+)", message)
    if unknown:
        known = [
            f"--{section}.{key.name}"
            for section, kind in SECTIONS.items()
            for key in dataclasses.fields(kind)
        ]
        known += ["--run", "--overwrite", "--print_config", "--help"]
        option = unknown.group(1)
        return f"unknown option {option}{nearest(option, known)} --help lists all."
    return message
