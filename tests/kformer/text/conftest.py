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
    "2024-01-31 <s> </s> <pad> <unk> <0x41> ▁ ⁇",
]


def corpus() -> list[str]:
    words = " ".join(SENTENCES).split()
    choose = random.Random(0)
    return SENTENCES + [" ".join(choose.choices(words, k=6)) for _ in range(200)]


@pytest.fixture(scope="session")
def contents():
    """Kind -> (class, file content)."""
    lines = corpus()
    return {
        "unigram": (SentencePieceTokenizer, _sentencepiece(lines, "unigram")),
        "bpe": (SentencePieceTokenizer, _sentencepiece(lines, "bpe")),
        "words": (WordTokenizer, WordTokenizer.learn(lines)._to_bytes()),
    }


def _sentencepiece(lines, model_type):
    return SentencePieceTokenizer.learn(lines, 450, model_type, character_coverage=1.0)._to_bytes()


@pytest.fixture
def build(contents):
    """A function from a kind to a new tokenizer."""

    def build(kind):
        cls, content = contents[kind]
        return cls._from_bytes(content)

    return build


@pytest.fixture(params=["unigram", "bpe", "words"])
def tokenizer(request, build):
    return build(request.param)


@pytest.fixture(params=["unigram", "bpe"])
def subwords(request, build):
    return build(request.param)
