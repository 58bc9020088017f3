"""What preparing a large corpus costs: `python -m benchmarks.data [--pairs N]`.

Writes a corpus of that many pairs, those of the embedded corpus over and over, each with a number
of its own so that none is a repetition. Prepares it as a training run would, in a process of its
own, and starts again. Prints for each stage the time and the most memory that the process and all
its children held: their proportional set size, so that shared pages count once.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from training.data.corpus import read_pairs

_STAGES = ("reading and cleaning", "learning the vocabulary", "tokenising")
_FIRST_BATCH = """
import sys, time
began = time.perf_counter()
from training.config import load_config
from training.data.prepare import prepare_text
config = load_config(__import__("pathlib").Path(sys.argv[1]))
prepared = prepare_text(config)
print(f"text ready after {time.perf_counter() - began:.2f} s", flush=True)
from kformer.quiet import import_tensorflow
import_tensorflow()
print(f"TensorFlow loaded after {time.perf_counter() - began:.2f} s", flush=True)
from training.data.batches import TrainingBatches
batches = TrainingBatches(prepared.train, max_tokens=config.train.batch_tokens, seed=1).dataset()
next(iter(batches))
print(f"first batch after {time.perf_counter() - began:.2f} s", flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000, help="size of the corpus")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--kind", default="unigram", help="tokenizer.kind")
    parser.add_argument("--folder", help="where to work; needs about 400 bytes a pair")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _measure(Path(folder), options)


def _measure(folder: Path, options: argparse.Namespace) -> None:
    corpus = folder / "corpus.tsv"
    _write_corpus(corpus, options.pairs)
    print(f"{options.pairs:,} pairs, {corpus.stat().st_size / 1e9:.2f} GB, {os.cpu_count()} cores")
    config = folder / "config.yaml"
    config.write_text(
        f"data: {{train: {corpus}, cache: {folder / 'cache'}}}\n"
        f"tokenizer: {{kind: {options.kind}, vocab_size: {options.vocab_size}}}\n"
    )
    out = folder / "out"
    command = [sys.executable, "-u", "-m", "training.data", str(config), "--out", str(out)]
    for name, stage in _run(command, _STAGES):
        print(f"{name:26} {stage.seconds:7.1f} s  {stage.peak / 1e9:5.2f} GB")
    began = time.perf_counter()
    subprocess.run([*command, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    print(f"{'the same command again':26} {time.perf_counter() - began:7.1f} s")
    print("a training run that starts again:")
    for name, stage in _run([sys.executable, "-u", "-c", _FIRST_BATCH, str(config)], ()):
        print(f"{name:26} {stage.seconds:7.1f} s  {stage.peak / 1e9:5.2f} GB")


def _write_corpus(path: Path, pairs: int) -> None:
    own = [pair for pair in read_pairs("libreoffice-help.en-de/train")]
    with path.open("w", encoding="utf-8") as file:
        for number in range(pairs):
            source, target = own[number % len(own)]
            file.write(f"{source} {number}\t{target} {number}\n")


class _Stage:
    def __init__(self):
        self.began, self.seconds, self.peak = time.perf_counter(), 0.0, 0


def _run(command: list[str], names: tuple[str, ...]) -> list[tuple[str, _Stage]]:
    """Runs a command; returns what each stage took. A stage begins when its name is printed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stages = [("start", _Stage())]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            stage = stages[-1][1]
            stage.peak = max(stage.peak, _memory(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for line in process.stdout:
        name = next((name for name in names if line.startswith(name)), None)
        if name:
            stages[-1][1].seconds = time.perf_counter() - stages[-1][1].began
            stages.append((name, _Stage()))
        elif not names:
            print(f"  {line}", end="")
    stages[-1][1].seconds = time.perf_counter() - stages[-1][1].began
    ended.set()
    watcher.join()
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed")
    return stages


def _memory(pid: int) -> int:
    """Bytes that a process and its children hold, pages they share counted once."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        own = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, StopIteration):  # It has just ended.
        return 0
    return own * 1024 + sum(_memory(int(child)) for child in children)


if __name__ == "__main__":
    main()
