"""An experiment: which variants are trained over which seeds, and how each translates."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonargparse

from kformer.errors import InputError
from training.command_line import parse_config
from training.compare.files import named_groups, read_yaml
from training.compare.searches import SearchOptions, parse_search, search_of
from training.config import DEFAULT_PRESET, SECTIONS, Config, config_file, nearest
from training.run import with_vocabulary

_KNOWN = [
    f"{section}.{key.name}"
    for section, kind in SECTIONS.items()
    for key in dataclasses.fields(kind)
]
# All variants are scored on the same text, in the same way.
_SHARED = ("data.test", "scoring.bleu_tokenize")
_LENGTHS = (5, 10, 15, 20, 30, 40)


@dataclass(frozen=True)
class Variant:
    """One thing that is compared.

    Args:
        name: what tables and pictures call it.
        settings: what it has that others have not.
        words: the words after `python -m training.run` that train it, but for the seed.
        config: what they mean, with any seed.
        searches: what its translations are made with, by name.
    """

    name: str
    settings: dict[str, Any]
    words: tuple[str, ...]
    config: Config
    searches: dict[str, SearchOptions]


@dataclass(frozen=True)
class Experiment:
    """A question, and the runs that answer it.

    Args:
        file: where it was read.
        title: what the report is called.
        question: what is asked; empty if nothing is.
        base: the preset or configuration file that all variants start from.
        settings: what all variants change of it.
        seeds: each variant is trained once with each.
        variants: what is compared; the others are compared with the first.
        lengths: the longest source of each group, in words, that BLEU is shown for; one more
            group holds what is longer.
    """

    file: Path
    title: str
    question: str
    base: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    lengths: tuple[int, ...]


def read_experiment(path: Path, given: Mapping[str, str] | None = None) -> Experiment:
    """The experiment in a file, checked down to each key of each variant.

    Args:
        path: of the file.
        given: from the command line, by name: what the experiment needs, and settings for all
            variants.

    Raises:
        InputError: naming the file, and the variant and key, that is wrong.
    """
    content = read_yaml(path)
    needed, more = _split(path, content.get("needs", {}), given or {})
    base = content.get("base", DEFAULT_PRESET)
    _in(f"{path}: base", config_file, base)
    settings = _checked(path, "settings", {**content.get("settings", {}), **more}, needed)
    groups = named_groups(path, "variants", content.get("variants", {base: {}}))
    searches = None
    if "searches" in content:
        searches = {
            name: _in(f"{path}: searches: {name}", parse_search, keys)
            for name, keys in named_groups(path, "searches", content["searches"]).items()
        }
    variants = []
    for name, keys in groups.items():
        where = f"variants: {name}"
        own = _checked(path, where, keys, needed)
        for key in more:
            if key in own:
                raise InputError(f"{path}: --set {key}: is what the variant {name} is about")
        for key in _SHARED:
            if key in own:
                raise InputError(
                    f"{path}: {where}: {key} must be the same for all variants: put it in settings"
                )
        words = (base, *option_words({**settings, **own}))
        config = _in(f"{path}: {where}", parse_words, words)
        variants.append(
            Variant(name, own, words, config, searches or {"": search_of(config.scoring)})
        )
    _check_slugs(path, "variants", groups)
    _check_slugs(path, "searches", searches or ())
    return Experiment(
        path,
        content.get("title", path.stem),
        " ".join(content.get("question", "").split()),
        base,
        settings,
        _numbers(path, "seeds", content.get("seeds", [1]), 0),
        tuple(variants),
        tuple(sorted(_numbers(path, "lengths", content.get("lengths", list(_LENGTHS)), 1))),
    )


def parse_words(words: tuple[str, ...]) -> Config:
    """What the words of a `python -m training.run` mean.

    Raises:
        InputError: as that command says it.
    """
    parser = jsonargparse.ArgumentParser(exit_on_error=False, print_config=None, allow_abbrev=False)
    config, _ = parse_config(parser, list(words), DEFAULT_PRESET)
    return with_vocabulary(config)


def option_words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command line takes them."""
    return [
        f"--{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in settings.items()
    ]


def slug(name: str) -> str:
    """A name that is fit for files."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "default"


def _split(
    path: Path, needs: dict[str, str], given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What was given as the experiment needs it, and the settings."""
    for name, meaning in needs.items():
        if not isinstance(meaning, str):
            raise InputError(f"{path}: needs: {name} must say what it is. Received: {meaning!r}")
        if name not in given:
            meaning = " ".join(meaning.split()).removesuffix(".")
            raise InputError(f"{path}: needs {meaning}. Give --set {name}=...")
    known = [*needs, *_KNOWN]
    for name in given:
        if name not in known:
            raise InputError(f"--set: unknown key {name}{nearest(name, known)}")
    return (
        {name: value for name, value in given.items() if name in needs},
        {name: value for name, value in given.items() if name not in needs},
    )


def _checked(
    path: Path, where: str, keys: dict[str, Any], needed: dict[str, str]
) -> dict[str, Any]:
    """Settings whose keys exist, with what was needed filled in."""
    filled = {}
    for key, value in keys.items():
        if key not in _KNOWN:
            raise InputError(f"{path}: {where}: unknown key {key}{nearest(key, _KNOWN)}")
        if key == "train.seed":
            raise InputError(f"{path}: {where}: train.seed is of each run: put it in seeds")
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items):
            if isinstance(item, str) and item.startswith("$"):
                if item[1:] not in needed:
                    raise InputError(
                        f"{path}: {where}: {key}: {item} is not in needs{nearest(item, needed)}"
                    )
                items = [*items[:number], needed[item[1:]], *items[number + 1 :]]
        value = items if isinstance(value, list) else items[0]
        for item in items:
            if not isinstance(item, str | int | float | None):
                raise InputError(
                    f"{path}: {where}: {key} must be a number, text, true, false, null or a list "
                    f"of them. Received: {value!r}"
                )
        filled[key] = value
    return filled


def _numbers(path: Path, key: str, values: list, least: int) -> tuple[int, ...]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise InputError(
                f"{path}: {key} must be whole numbers from {least} to 2**31. Received: {value!r}"
            )
    if not values or len(set(values)) < len(values):
        raise InputError(f"{path}: {key} must be different numbers. Received: {values}")
    return tuple(values)


def _check_slugs(path: Path, key: str, names) -> None:
    """Names whose folders or files would be the same are refused."""
    seen = {}
    for name in names:
        # There are file systems that know no case.
        other = seen.setdefault(slug(name).lower(), name)
        if other != name:
            raise InputError(f"{path}: {key}: {other!r} and {name!r} are too alike to name files")


def _in(where: str, function, *arguments):
    """Calls a function whose errors shall say where in the experiment they are."""
    try:
        return function(*arguments)
    except InputError as error:
        message = re.sub(r"(^|\s)--(\w+\.)", r"\1\2", str(error))
        raise InputError(f"{where}: {message}") from error
