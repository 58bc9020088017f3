"""The searches of an experiment: the options of `python -m kformer.translate`, in YAML."""

import argparse
from dataclasses import dataclass
from typing import Any, NoReturn

from kformer.errors import InputError
from kformer.search_options import add_search_options, check_search_options
from training.config import ScoringConfig, nearest

# More than one translation of a sentence could not be scored, alignments are not looked at.
_NOT_HERE = ("n_best", "alignment_layer", "alignment_heads")


@dataclass(frozen=True)
class SearchOptions:
    """One way to translate.

    Args:
        words: the options of `python -m kformer.translate` that ask for it.
        parsed: all of them, as `make_graph` takes them.
    """

    words: tuple[str, ...]
    parsed: argparse.Namespace


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def parse_search(keys: dict[str, Any]) -> SearchOptions:
    """The options of one search.

    Args:
        keys: names of options, with underscores, and their values; a flag is true or false, and
            what may be given several times is a list.

    Raises:
        InputError: an option is unknown, of the wrong type, or excludes another.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_search_options(parser)
    defaults = vars(parser.parse_args([]))
    known = [name for name in defaults if name not in _NOT_HERE]
    words = []
    for key, value in keys.items():
        if key not in known:
            raise InputError(f"unknown option {key}{nearest(key, known)}")
        option = f"--{key.replace('_', '-')}"
        if isinstance(defaults[key], bool):
            if not isinstance(value, bool):
                raise InputError(f"{key} must be true or false. Received: {value!r}")
            words += [option] if value else []
        elif isinstance(defaults[key], list):
            values = value if isinstance(value, list) else [value]
            words += [f"{option}={item}" for item in values]
        else:
            words.append(f"{option}={value}")
    parsed = parser.parse_args(words)
    check_search_options(parsed)
    return SearchOptions(tuple(words), parsed)


def search_of(scoring: ScoringConfig) -> SearchOptions:
    """The search that a run itself is scored with."""
    if scoring.beam_size == 1:
        return parse_search({})
    return parse_search({"beam_size": scoring.beam_size, "length_penalty": scoring.length_penalty})
