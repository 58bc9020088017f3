"""Small vocabularies of every kind, learned once and rebuilt for each test.

Only file contents live as long as the session: seeding Keras or TensorFlow anywhere in the process
frees the native model of every SentencePiece tokenizer alive.
"""

import random

import pytest

from kformer.text import SentencePieceTokenizer, WordTokenizer

SENTENCES = [
    "don't, l'eau 3.14 我爱你 😀",
    "The cat sat on the mat; the dog ran over the green hills.",
    "# ##x of Wörter, naïve café!",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "がぎぐげご カタカナ",
    "👩\u200d👩\u200d👧 and ❤\ufe0f",
    "می\u200cخواهم",
    "ぱぴぷ ガギ 学校へ行きます。",
    "co\u00adop שלום\u200f ab\ufeffcd",
    "2024-01-31 <s> </s> <pad> <unk> <0x41> ▁ ⁇",
]


SUBWORDS = ["unigram", "bpe", "character", "bytes"]
KINDS = [*SUBWORDS, "words"]


def learn(kind, lines, vocab_size=450):
    """A tokenizer of any kind."""
    if kind == "words":
        return WordTokenizer.learn(lines, vocab_size)
    if kind == "bytes":
        return SentencePieceTokenizer.of_bytes()
    return SentencePieceTokenizer.learn(lines, vocab_size, kind, character_coverage=1.0)


def corpus() -> list[str]:
    words = " ".join(SENTENCES).split()
    choose = random.Random(0)
    return SENTENCES + [" ".join(choose.choices(words, k=6)) for _ in range(200)]


@pytest.fixture(scope="session")
def contents():
    """Kind -> (class, file content)."""
    tokenizers = {kind: learn(kind, corpus()) for kind in KINDS}
    return {kind: (type(one), one._to_bytes()) for kind, one in tokenizers.items()}


@pytest.fixture
def build(contents):
    """A function from a kind to a new tokenizer."""

    def build(kind):
        cls, content = contents[kind]
        return cls._from_bytes(content)

    return build


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def tokenizer(kind, build):
    return build(kind)


@pytest.fixture(name="learn")
def learn_fixture():
    return learn


@pytest.fixture(params=SUBWORDS)
def subwords(request, build):
    return build(request.param)
