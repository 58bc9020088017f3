import pytest
import tensorflow as tf

from export.run import main
from kformer.graph import TranslationGraph
from kformer.search import Beam, Greedy
from kformer.text import SentencePieceTokenizer, WordTokenizer

WORDS = [chr(ord("a") + i) * 2 for i in range(20)]
LINES = [" ".join(WORDS[i % 20 : i % 20 + 1 + i % 7]) + "." for i in range(60)]
# What a server may be sent, and a Python string cannot always hold.
WILD = [
    b"", b"   ", b"\t\xc2\xa0", "😀 aa 👩\u200d👧".encode(), b"\xff\xfe aa \xc3", b"aa\x00bb",
    b"aa\nbb", b"aa bb. " * 400,
]  # fmt: skip


def tokenizer(kind):
    if kind == "subwords":
        return SentencePieceTokenizer.learn(LINES, 320)
    return WordTokenizer.learn(LINES)


@pytest.fixture(scope="session")
def runs(tmp_path_factory, save_run, random_recurrent):
    """Run folders by kind; random weights. Transformers with subwords or words, and recurrent
    models, with words.

    The decoder of the subwords is two layers deep; more to trace and to load would prove no more.
    """
    texts = {"valid": LINES, "test": LINES[:20]}
    recurrent = dict(build=random_recurrent, bidirectional=True)
    options = {
        "subwords": dict(d_ff=64, num_decoder_layers=2),
        "words": dict(d_ff=64),
        "recurrent": dict(attention="additive", input_feeding=True, **recurrent),
        "no attention": dict(attention="none", cell="gru", **recurrent),
    }
    return {
        kind: save_run(
            tmp_path_factory.mktemp(kind.replace(" ", "_")) / "run", tokenizer(kind), texts, **own
        )
        for kind, own in options.items()
    }


SEARCHES = {
    ("subwords", "greedy"): [],
    ("subwords", "beam"): ["--beam-size=4", "--n-best=3", "--length-penalty=0.6"],
    ("words", "beam"): ["--beam-size=2", "--no-verify"],
    ("recurrent", "beam"): ["--beam-size=2", "--no-verify"],
    ("no attention", "greedy"): ["--no-verify"],
}


@pytest.fixture(scope="session")
def exported(tmp_path_factory, runs):
    """Folders of versions by tokenizer and search, each with a version 1, made when asked for."""

    class Exported(dict):
        def __missing__(self, case):
            kind, _ = case
            base = self[case] = tmp_path_factory.mktemp("export") / kind.replace(" ", "_")
            assert main([str(runs[kind].path), "--out", str(base), *SEARCHES[case]]) == 0
            return base

    return Exported()


# Not longer than a module: seeding anywhere frees every SentencePiece tokenizer alive.
@pytest.fixture(
    scope="module",
    params=[
        ("subwords", "greedy"),
        pytest.param(("words", "beam"), marks=pytest.mark.slow),
        pytest.param(("recurrent", "beam"), marks=pytest.mark.slow),
        pytest.param(("subwords", "beam"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def version(exported, case):
    """The folder of a version."""
    return exported[case] / "1"


@pytest.fixture(scope="module")
def signatures(version):
    """The signatures of a version, loaded in this process."""
    loaded = tf.saved_model.load(version)
    yield loaded.signatures


@pytest.fixture(scope="module")
def graph(runs, case):
    """The graph that was exported, once more."""
    kind, search = case
    if search == "greedy":
        search = Greedy()
    elif kind == "subwords":
        search = Beam(size=4, n_best=3, length_penalty=0.6)
    else:
        search = Beam(size=2)
    return TranslationGraph(*runs[kind].load(), search)
