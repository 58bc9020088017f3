"""Write text with a language model: `python -m kformer.generate RUN [--prompt TEXT | FILE]`."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kformer.command_line import leave, run_command
from kformer.errors import InputError
from kformer.lines import as_they_come, in_lists, open_text, read_lines
from kformer.quiet import import_tensorflow
from kformer.search_options import (
    add_beam_options,
    add_constraint_options,
    add_sampling_options,
    check_search_options,
    make_search,
)

if TYPE_CHECKING:
    from kformer.generation import Generator
    from kformer.translation import Hypothesis

# Prompts continued at a time.
_CHUNK = 512
_PROMPT = "--prompt"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    options = _parser().parse_intermixed_args(arguments)
    return run_command(lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kformer.generate",
        description="Write text with a model of lines of one language: each line is a prompt, and "
        "one line comes out that begins with it; of a blank line, whatever the model begins with. "
        "Tokens are drawn at random, the same with the same --seed; --greedy and --beam-size "
        "search for what is likeliest. With --n-best N, N lines stand one below the other, best "
        "first; where there are fewer, blank lines fill up.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument(
        "file", metavar="FILE", nargs="?",
        help="UTF-8 text, a prompt a line; without it and --prompt standard input is read",
    )  # fmt: skip
    parser.add_argument("--prompt", metavar="TEXT", help="the one prompt; '' for none")
    sample = parser.add_argument_group("sampling")
    add_sampling_options(sample)
    search = parser.add_argument_group("search, in place of sampling")
    search.add_argument("--greedy", action="store_true", help="the likeliest token at each step")
    add_beam_options(search)
    search.add_argument(
        "--num-samples", type=int, metavar="N", dest="n_best", help="another name of --n-best"
    )
    limits = parser.add_argument_group("what may be generated")
    limits.add_argument(
        "--max-length", type=int, default=100, metavar="N",
        help="tokens at most after the prompt, end included (default 100)",
    )  # fmt: skip
    add_constraint_options(limits)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--stream", action="store_true",
        help="show a text while it is written, prompt after prompt; as is done anyway with one "
        "prompt or typed ones on a terminal",
    )  # fmt: skip
    output.add_argument(
        "--json", action="store_true",
        help="a JSON object for each prompt, with tokens and log-probabilities",
    )  # fmt: skip
    parser.add_argument(
        "--max-batch-tokens", type=int, default=8192, metavar="N",
        help="tokens times hypotheses in work at once (default 8192)",
    )  # fmt: skip
    # A language model has no source to attend to.
    parser.set_defaults(coverage_penalty=0.0)
    return parser


def _run(options: argparse.Namespace) -> int:
    _check(options)
    name = _PROMPT if options.prompt is not None else options.file or "standard input"
    with _prompts(options, name) as prompts:
        # Not before the file is known to be there: loading takes seconds.
        import_tensorflow()
        generator = _generator(options)
        typed = options.prompt is None and options.file is None and sys.stdin.isatty()
        alone = typed or options.prompt is not None
        one = options.n_best == options.beam_size == 1 and not options.json
        if options.stream or (alone and one and sys.stdout.isatty()):
            _stream(generator, prompts, name)
            return 0
        done = 0
        lists = in_lists if options.file else as_they_come
        for chunk in lists(prompts, _CHUNK):
            for prompt, found in zip(chunk, _found(generator, chunk, name, done), strict=True):
                _write("".join(f"{line}\n" for line in _output(prompt, found, options)))
            done += len(chunk)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuses options that exclude each other, before anything is loaded."""
    if options.prompt is not None and options.file is not None:
        raise InputError("--prompt is the one prompt, FILE holds some: give one of them")
    if options.prompt is not None and "\n" in options.prompt:
        raise InputError("--prompt must be one line")
    if options.greedy and options.beam_size > 1:
        raise InputError("--greedy is a beam of 1: give it or --beam-size")
    options.sample = not options.greedy and options.beam_size == 1
    check_search_options(options, "sampling: leave out --greedy and --beam-size")
    if options.stream and (options.n_best > 1 or options.beam_size > 1 or options.json):
        raise InputError(
            "--stream shows one text as it is written: no --n-best, --beam-size, --json"
        )


@contextlib.contextmanager
def _prompts(options: argparse.Namespace, name: str) -> Iterator[Iterator[str]]:
    if options.prompt is not None:
        yield iter([options.prompt])
        return
    with open_text(options.file) as stream:
        yield read_lines(stream, name)


def _generator(options: argparse.Namespace) -> "Generator":
    from kformer.generation import GenerationGraph, Generator, load_language_model

    model, tokenizers = load_language_model(options.run)
    search = make_search(options, tokenizers)
    graph = GenerationGraph(model, tokenizers, search, max_length=options.max_length)
    return Generator(graph, max_batch_tokens=options.max_batch_tokens)


def _stream(generator: "Generator", prompts: Iterator[str], name: str) -> None:
    for number, prompt in enumerate(prompts):
        with _naming(name, number):
            for part in generator.stream(prompt):
                _write(part)
        _write("\n")


def _found(generator: "Generator", prompts: list[str], name: str, done: int):
    with _naming(name, done):
        return generator.generate(prompts)


@contextlib.contextmanager
def _naming(name: str, before: int) -> Iterator[None]:
    """Gives an error of a prompt the number of its line."""
    from kformer.translator import TextTooLongError

    try:
        yield
    except TextTooLongError as error:
        place = name if name == _PROMPT else f"{name}, line {before + error.index + 1}"
        raise InputError(f"{place}: {error.reason}") from error


def _output(prompt: str, found: "list[Hypothesis]", options: argparse.Namespace) -> Iterator[str]:
    if options.json:
        hypotheses = [
            {name: value for name, value in vars(hypothesis).items() if name != "alignment"}
            for hypothesis in found
        ]
        content = {"prompt": prompt, "text": found[0].text, "hypotheses": hypotheses}
        yield json.dumps(content, ensure_ascii=False)
        return
    texts = [hypothesis.text for hypothesis in found[: options.n_best]]
    yield from texts + [""] * (options.n_best - len(texts))


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    leave(main())
