"""Command-line options of a search, for every command that has one."""

import argparse
import math
from typing import TYPE_CHECKING

from kformer.errors import InputError

if TYPE_CHECKING:
    from kformer.graph import TranslationGraph
    from kformer.models.base import SequenceModel
    from kformer.search import Search
    from kformer.text import Tokenizers

_OF_BEAMS = ("length_penalty", "length_penalty_form", "coverage_penalty")
_OF_SAMPLES = ("temperature", "top_k", "top_p", "min_p", "seed")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a translation's search, in groups."""
    search = parser.add_argument_group("search")
    add_beam_options(search)
    search.add_argument(
        "--coverage-penalty", type=float, default=0.0, metavar="BETA",
        help="with a beam: above 0 favours translations that attend to all of the source",
    )  # fmt: skip
    sample = parser.add_argument_group("sampling, in place of a search for the best")
    sample.add_argument("--sample", action="store_true", help="draw tokens at random")
    add_sampling_options(sample)
    limits = parser.add_argument_group("what may be generated")
    limits.add_argument("--max-length", type=int, metavar="N", help="tokens at most, end included")
    limits.add_argument(
        "--length-factor", type=float, default=2.0, metavar="A",
        help="a source of n tokens has at most A*n + B, end included (default 2)",
    )  # fmt: skip
    limits.add_argument(
        "--length-margin", type=int, default=20, metavar="B", help="see above (default 20)"
    )
    limits.add_argument(
        "--max-source-tokens", type=int, default=128, metavar="N",
        help="most tokens read as one sentence (default 128)",
    )  # fmt: skip
    add_constraint_options(limits)
    alignment = parser.add_argument_group("attention")
    alignment.add_argument(
        "--alignment-layer", type=int, default=-1, metavar="N",
        help="decoder layer whose attention is read, from 0; -1 (default) is the last",
    )  # fmt: skip
    alignment.add_argument(
        "--alignment-heads", type=int, nargs="+", metavar="N", help="heads, from 0; default all"
    )


def add_beam_options(search: argparse._ArgumentGroup) -> None:
    """Adds what a beam search without a source has."""
    search.add_argument(
        "--beam-size", type=int, default=1, metavar="N", help="hypotheses; 1 (default) is greedy"
    )
    search.add_argument(
        "--n-best", type=int, default=1, metavar="N",
        help="so many of each line, the best first (default 1)",
    )  # fmt: skip
    search.add_argument(
        "--length-penalty", type=float, default=0.0, metavar="ALPHA",
        help="with a beam: above 0 favours longer translations (default 0)",
    )  # fmt: skip
    search.add_argument(
        "--length-penalty-form", choices=["gnmt", "power"], default="gnmt",
        help="gnmt: ((5+n)/6)^ALPHA (default); power: n^ALPHA, n the tokens with the end",
    )  # fmt: skip


def add_sampling_options(sample: argparse._ArgumentGroup) -> None:
    """Adds how tokens are drawn."""
    sample.add_argument("--temperature", type=float, default=1.0, help="below 1: surer (default 1)")
    sample.add_argument("--top-k", type=int, default=0, metavar="K", help="of the K likeliest only")
    sample.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="of the likeliest that make up P only"
    )
    sample.add_argument(
        "--min-p", type=float, default=0.0, metavar="P", help="of those with P of the best's share"
    )
    sample.add_argument("--seed", type=int, default=0, help="same seed, same sample (default 0)")


def add_constraint_options(limits: argparse._ArgumentGroup) -> None:
    """Adds what may be generated, but for the most tokens."""
    limits.add_argument("--min-length", type=int, default=0, metavar="N",
        help="tokens at least, a prefix or prompt not counted",
    )  # fmt: skip
    limits.add_argument(
        "--no-repeat-ngram", type=int, default=0, metavar="N", help="no N tokens in a row twice"
    )
    limits.add_argument(
        "--repetition-penalty", type=float, default=1.0, metavar="X",
        help="above 1: what was generated before is less likely again",
    )  # fmt: skip
    limits.add_argument(
        "--forbid", action="append", default=[], metavar="PIECE",
        help="never generate this piece of the vocabulary; may be given again",
    )  # fmt: skip


def check_nothing_is_set(options: argparse.Namespace, why: str) -> None:
    """Refuses options of the search where there is no choice.

    Args:
        options: as parsed.
        why: there is none.

    Raises:
        InputError: naming the first one given.
    """
    for name in given_search_options(options):
        raise InputError(f"--{name.replace('_', '-')}: {why}")


def check_search_options(options: argparse.Namespace, to_sample: str = "--sample") -> None:
    """Refuses options that exclude each other, before anything is loaded.

    Args:
        options: as parsed.
        to_sample: what one does to sample.

    Raises:
        InputError: naming them.
    """
    if options.sample and options.beam_size > 1:
        raise InputError("--sample draws, --beam-size searches: give one of them")
    if not options.sample and options.n_best > options.beam_size:
        raise InputError(
            f"--n-best {options.n_best} needs a beam as wide: --beam-size {options.n_best}, or more"
        )
    if options.min_length and options.min_length >= (options.max_length or math.inf):
        raise InputError(
            f"--min-length {options.min_length} and an end do not fit --max-length "
            f"{options.max_length}: raise that, or lower --min-length"
        )
    given = given_search_options(options)
    for group, needed, is_there in (
        (_OF_BEAMS, "--beam-size of at least 2", options.beam_size > 1),
        (_OF_SAMPLES, to_sample, options.sample),
    ):
        for name in group:
            if name in given and not is_there:
                raise InputError(f"--{name.replace('_', '-')} needs {needed}")


def given_search_options(options: argparse.Namespace) -> list[str]:
    """Names of the search's options that differ from their defaults."""
    parser = argparse.ArgumentParser()
    add_search_options(parser)
    defaults = vars(parser.parse_args([]))
    return [
        name for name, default in defaults.items() if getattr(options, name, default) != default
    ]


def make_graph(
    model: "SequenceModel", tokenizers: "Tokenizers", options: argparse.Namespace
) -> "TranslationGraph":
    """The graph that the options describe.

    Raises:
        InputError: an option is out of range.
    """
    from kformer.alignment import AttentionFrom
    from kformer.graph import TranslationGraph

    search = make_search(options, tokenizers)
    heads = options.alignment_heads and tuple(options.alignment_heads)
    return TranslationGraph(
        model,
        tokenizers,
        search,
        length_factor=options.length_factor,
        length_margin=options.length_margin,
        max_length=options.max_length,
        max_source_tokens=options.max_source_tokens,
        attention=AttentionFrom(options.alignment_layer, heads),
    )


def make_search(options: argparse.Namespace, tokenizers: "Tokenizers | None" = None) -> "Search":
    """The search that the options describe.

    Args:
        options: as parsed.
        tokenizers: of the model, for forbidden pieces; None: these are not looked at.

    Raises:
        InputError: an option is out of range.
    """
    forbidden = ()
    if tokenizers is not None:
        ids = {piece: number for number, piece in enumerate(tokenizers.target.pieces())}
        for piece in options.forbid:
            if piece not in ids:
                raise InputError(f"--forbid {piece}: no piece of the target vocabulary")
        forbidden = tuple(ids[piece] for piece in options.forbid)
    try:
        return _search(options, forbidden)
    except ValueError as error:
        raise InputError(str(error)) from error


def _search(options: argparse.Namespace, forbidden: tuple[int, ...]) -> "Search":
    from kformer.search import Beam, Constraints, Greedy, Sample

    constraints = Constraints(
        min_length=options.min_length,
        no_repeat_ngram_size=options.no_repeat_ngram,
        repetition_penalty=options.repetition_penalty,
        forbidden_tokens=forbidden,
    )
    if options.sample:
        return Sample(
            n=options.n_best,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            seed=options.seed,
            constraints=constraints,
        )
    if options.beam_size == options.n_best == 1:
        return Greedy(constraints=constraints)
    return Beam(
        size=options.beam_size,
        n_best=options.n_best,
        length_penalty=options.length_penalty,
        length_penalty_form=options.length_penalty_form,
        coverage_penalty=options.coverage_penalty,
        constraints=constraints,
    )
