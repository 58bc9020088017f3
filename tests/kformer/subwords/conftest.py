"""A small vocabulary of every kind, learned once."""

import random

import pytest

from kformer.subwords.learn import byte_model, learn

SENTENCES = [
    "don't, l'eau 3.14 我爱你 😀",
    "The cat sat on the mat; the dog ran over the green hills.",
    "नमस्ते दुनिया สวัสดีชาวโลก がぎぐげご ぱぴぷ",
    "co\u00adop שלום\u200f ab\ufeffcd <s> </s> <0x41> ▁ ⁇  #  ##x",
]


@pytest.fixture(scope="session")
def lines():
    words = " ".join(SENTENCES).split()
    choose = random.Random(0)
    return SENTENCES + [" ".join(choose.choices(words, k=6)) for _ in range(200)]


@pytest.fixture(scope="session")
def models(lines):
    """Kind -> model."""
    kinds = ("unigram", "bpe", "character")
    return {"bytes": byte_model()} | {kind: learn(lines, 400, kind) for kind in kinds}


@pytest.fixture(params=["unigram", "bpe", "character", "bytes"])
def model(request, models):
    return models[request.param]
