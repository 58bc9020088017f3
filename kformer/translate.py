"""Translate text with a trained model: `python -m kformer.translate RUN [FILE]`."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow

# Lines translated at a time: enough to batch well, few enough that output starts early.
_CHUNK = 512


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kformer.translate",
        description="Translate text, one line out for each line in; a blank line stays blank.",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="run folder, as training.run leaves it")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="UTF-8 text; without it standard input is read"
    )
    options = parser.parse_args(arguments)
    return run_command(lambda: _translate(options.run, options.file))


def _translate(run: str, file: str | None) -> int:
    with _open(file) as stream:
        # Not before the file is known to be there: loading takes seconds.
        import_tensorflow()
        from kformer.translator import TextTooLongError, Translator

        translator = Translator.from_run(run)
        name = file or "standard input"
        done = 0
        for lines in _chunks(_lines(stream, name), 1 if stream.isatty() else _CHUNK):
            try:
                output = "".join(f"{line}\n" for line in translator.translate(lines))
            except TextTooLongError as error:
                where = f"{name}, line {done + error.index + 1}"
                raise TextTooLongError(error.index, error.tokens, error.positions, where) from error
            done += len(lines)
            sys.stdout.buffer.write(output.encode())
            sys.stdout.buffer.flush()
    return 0


def _open(file: str | None) -> BinaryIO:
    if file is None:
        if sys.stdin is None:
            raise InputError("standard input is closed; name a FILE")
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines end at LF and nowhere else."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8. Convert it first.") from error


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    chunk = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


if __name__ == "__main__":
    sys.exit(main())
