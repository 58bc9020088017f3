"""How an export answers without Python: `python -m benchmarks.serving VERSION RUN`.

A C program loads the SavedModel by the loader that TensorFlow Serving uses, and translates test
sentences of the run, one at a time and 32. No network and no queue are in the figures.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kformer.command_line import run_command
from kformer.quiet import import_tensorflow


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description="Time to load an export and to answer, in a process without Python. Needs gcc.",
    )
    parser.add_argument("version", metavar="VERSION", help="folder that export.run wrote")
    parser.add_argument("run", metavar="RUN", help="run folder, for its test sentences")
    parser.add_argument("--sentences", type=int, default=320, help="how many (default 320)")
    options = parser.parse_args(arguments)
    return run_command(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> int:
    import_tensorflow()
    from benchmarks.native import NativeServer, build
    from kformer.run_folder import RunFolder

    run = RunFolder.open(options.run)
    texts = [source.encode() for source, _ in run.pairs("test")][: options.sentences]
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        began = time.perf_counter()
        with NativeServer(program, Path(options.version)) as server:
            print(f"loaded in {time.perf_counter() - began:.2f} s")
            print(f"first request {server.translate(texts[:1]).seconds:.2f} s")
            # Buffers are made anew for each width; the second pass shows what lasts.
            for size in (1, 32):
                batches = [texts[start : start + size] for start in range(0, len(texts), size)]
                for batch in batches:
                    server.translate(batch)
                seconds = [server.translate(batch).seconds for batch in batches]
                _print(size, seconds, len(texts))
    return 0


def _print(size: int, seconds: Sequence[float], sentences: int) -> None:
    hundredths = statistics.quantiles(seconds, n=100)
    print(
        f"batches of {size:2}: p50 {1000 * hundredths[49]:.0f} ms, p99 {1000 * hundredths[98]:.0f} "
        f"ms, {sentences / sum(seconds):.1f} sentences/s"
    )


if __name__ == "__main__":
    sys.exit(main())
