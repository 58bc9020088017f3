"""How fast a trained model translates: `python -m benchmarks.decode RUN`.

Greedy and beam 4; one sentence at a time, 32, and as many as the token budget takes; beside a loop
over the same weights that keeps no cache, and beside CTranslate2, an optimised C++ engine, if it is
installed (`pip install 'kformer[convert]'`). Each figure is the median of several rounds, in which
all take turns, so that a machine that slows down slows all of them.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kformer.command_line import run_command
from kformer.errors import InputError
from kformer.quiet import import_tensorflow

BEAM = 4
# One by one, this share of the sentences is enough.
SINGLE_SHARE = 8


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decode",
        description="Speed of decoding: sentences and output tokens a second.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder; its test text is translated")
    parser.add_argument("--sentences", type=int, default=800, help="how many (default 800)")
    parser.add_argument("--rounds", type=int, default=3, help="medians of so many (default 3)")
    options = parser.parse_args(arguments)
    return run_command(lambda: _measure(options))


@dataclass
class Contestant:
    """One way to decode: its name, what it does with which texts, and what was measured."""

    name: str
    decode: Callable[[Sequence[str]], int]  # gives the number of output tokens
    texts: Sequence[str]

    def __post_init__(self):
        self.seconds: list[float] = []
        self.tokens = 0

    def take_turn(self) -> None:
        began = time.perf_counter()
        self.tokens = self.decode(self.texts)
        self.seconds.append(time.perf_counter() - began)

    @property
    def rate(self) -> float:
        """Sentences a second."""
        return len(self.texts) / statistics.median(self.seconds)

    def __str__(self) -> str:
        tokens = self.tokens / statistics.median(self.seconds)
        return f"{self.name:34}{self.rate:10.1f}{tokens:12,.0f}{1000 / self.rate:12.1f}"


def _measure(options: argparse.Namespace) -> int:
    import_tensorflow()
    from kformer.run_folder import RunFolder

    run = RunFolder.open(options.run)
    model, tokenizers = run.load()
    texts = [source for source, _ in run.pairs("test")][: options.sentences]
    with tempfile.TemporaryDirectory() as folder:
        contestants = _contestants(model, tokenizers, texts, Path(folder) / "converted")
    for contestant in contestants:
        contestant.decode(texts[:40])  # Traces.
    for number in range(options.rounds):
        for contestant in contestants:
            contestant.take_turn()
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    print(f"{len(texts)} sentences of {run.path}, medians of {options.rounds} rounds")
    print(f"{'':34}{'sentences/s':>10}{'tokens/s':>11}{'ms/sentence':>12}")
    for contestant in contestants:
        print(contestant)
    rates = {contestant.name: contestant.rate for contestant in contestants}
    print(f"\ncache: {rates['greedy, 32'] / rates['no cache, greedy, 32']:.1f} times as fast")
    print(f"beam {BEAM}: {rates['greedy, 32'] / rates[f'beam {BEAM}, 32']:.2f} times greedy's time")
    print(f"output twice as long: {_twice_as_long(model, tokenizers, texts):.2f} times the time")
    return 0


def _contestants(model, tokenizers, texts, folder: Path) -> list[Contestant]:
    from kformer.graph import TranslationGraph
    from kformer.search import Beam, Greedy
    from kformer.translator import Translator

    def translate(search, sentences):
        translator = Translator(
            TranslationGraph(model, tokenizers, search),
            max_batch_sentences=sentences,
            max_batch_tokens=10**9 if sentences else 4096,
        )

        def decode(texts):
            found = translator.translate_nbest(texts)
            return sum(len(translation.hypotheses[0].tokens) for translation in found)

        return decode

    contestants = []
    for name, search in (("greedy", Greedy()), (f"beam {BEAM}", Beam(size=BEAM))):
        contestants += [
            Contestant(f"{name}, 1", translate(search, 1), texts[::SINGLE_SHARE]),
            Contestant(f"{name}, 32", translate(search, 32), texts),
            Contestant(f"{name}, token budget", translate(search, None), texts),
        ]
    contestants.append(Contestant("no cache, greedy, 32", _no_cache(model, tokenizers), texts))
    try:
        contestants += _ctranslate2(model, tokenizers, texts, folder)
    except InputError as error:
        print(error, file=sys.stderr)
    return contestants


def _ctranslate2(model, tokenizers, texts, folder: Path) -> list[Contestant]:
    """The same weights and texts on another engine."""
    from export.ctranslate2 import write_ctranslate2

    write_ctranslate2(model, tokenizers, folder)
    pieces = tokenizers.source.pieces()
    sample = tokenizers.source.tokenize(texts[:32]).to_list()
    engine = _fastest_engine(folder, [[pieces[id] for id in ids] for ids in sample])

    def translate(beam_size, sentences):
        def decode(texts):
            ids = tokenizers.source.tokenize(texts).to_list()
            sources = [[pieces[id] for id in of_text] for of_text in ids]
            # A call of its own for each sentence: it would translate several side by side.
            calls = [[source] for source in sources] if sentences == 1 else [sources]
            results = [
                result
                for call in calls
                for result in engine.translate_batch(
                    call, beam_size=beam_size, length_penalty=0, max_batch_size=sentences,
                    max_decoding_length=300,
                )
            ]  # fmt: skip
            tokenizers.target.detokenize(
                tf.ragged.constant([[ids_of[p] for p in r.hypotheses[0]] for r in results])
            )
            return sum(len(result.hypotheses[0]) + 1 for result in results)

        return decode

    import tensorflow as tf

    ids_of = {piece: number for number, piece in enumerate(tokenizers.target.pieces())}
    return [
        Contestant(f"CTranslate2, {name}, {sentences}", translate(size, sentences), some)
        for name, size in (("greedy", 1), (f"beam {BEAM}", BEAM))
        for sentences, some in ((1, texts[::SINGLE_SHARE]), (32, texts))
    ]


def _fastest_engine(folder: Path, sources):
    """CTranslate2 with a thread for each core or only one, whichever is faster: on cores that are
    shared with others its threads may wait for each other for longer than they work."""
    import ctranslate2

    def timed(threads):
        engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=threads)
        engine.translate_batch(sources)
        began = time.perf_counter()
        engine.translate_batch(sources)
        return time.perf_counter() - began, threads, engine

    _, threads, engine = min(timed(threads) for threads in {1, len(os.sched_getaffinity(0))})
    print(f"CTranslate2 with {threads} of {len(os.sched_getaffinity(0))} threads", file=sys.stderr)
    return engine


def _no_cache(model, tokenizers):
    """Greedy search that runs the whole decoder over all tokens so far for each new one."""
    import tensorflow as tf

    from kformer.ids import END_ID, PAD_ID, START_ID

    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[ids])
    def search(source):
        lengths = tf.math.count_nonzero(source, axis=1, dtype=tf.int32)
        limit = tf.reduce_max(2 * lengths + 20)
        batch = tf.shape(source)[0]
        encoded = model.encode(source)

        def go_on(tokens, ended):
            return (tf.shape(tokens)[1] <= limit) & ~tf.reduce_all(ended)

        def extend(tokens, ended):
            logits = model.decode(encoded, tokens)[:, -1]
            chosen = tf.argmax(logits, axis=1, output_type=tf.int32)
            chosen = tf.where(ended, PAD_ID, chosen)
            tokens = tf.concat([tokens, chosen[:, tf.newaxis]], axis=1)
            return tokens, ended | (chosen == END_ID)

        tokens, _ = tf.while_loop(
            go_on,
            extend,
            (tf.fill([batch, 1], START_ID), tf.zeros([batch], tf.bool)),
            shape_invariants=(tf.TensorShape([None, None]), tf.TensorShape([None])),
        )
        return tokens[:, 1:]

    def decode(texts):
        ordered = sorted(texts, key=len)
        count = 0
        for start in range(0, len(ordered), 32):
            source = tokenizers.source.tokenize(ordered[start : start + 32])
            source = tf.concat([source, tf.fill([source.nrows(), 1], END_ID)], axis=1)
            count += int(tf.math.count_nonzero(search(source.to_tensor())))
        return count

    return decode


def _twice_as_long(model, tokenizers, texts) -> float:
    """The time of 128 tokens of output over that of 64."""
    from kformer.graph import TranslationGraph
    from kformer.search import Constraints, Greedy
    from kformer.translator import Translator

    def seconds(length):
        search = Greedy(constraints=Constraints(min_length=length))
        translator = Translator(
            TranslationGraph(model, tokenizers, search, length_factor=0, length_margin=length),
            max_batch_sentences=32,
            max_batch_tokens=10**9,
        )
        translator.translate(texts[:32])
        measured = []
        for _ in range(3):
            began = time.perf_counter()
            translator.translate(texts[:320])
            measured.append(time.perf_counter() - began)
        return statistics.median(measured)

    return seconds(128) / seconds(64)


if __name__ == "__main__":
    sys.exit(main())
