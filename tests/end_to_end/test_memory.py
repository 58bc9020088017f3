"""Translating in training again and again takes no more memory than once."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource
import numpy as np
from kformer.graph import TranslationGraph
from kformer.models import Transformer
from kformer.text import Tokenizers, WordTokenizer
from kformer.translator import Translator
from training.callbacks.measure import TranslationScores
from training.data.rows import Pair

words = WordTokenizer.learn(["a b c d e f g"])
model = Transformer(words.vocab_size, words.vocab_size, d_model=32, num_heads=2, d_ff=32,
                    num_encoder_layers=1, num_decoder_layers=1)
random = np.random.default_rng(1)
pairs = [Pair(" ".join(random.choice(list("abcdefg"), 1 + i % 9)), "a b") for i in range(40)]
scores = TranslationScores(
    Translator(TranslationGraph(model, Tokenizers(words, words))), pairs, "13a"
)

def rounds(count):
    for _ in range(count):
        for weight in model.weights:
            weight.assign(random.normal(size=weight.shape))
        scores.on_epoch_end(0, {})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = rounds(10)
print(rounds(200) - before)
"""


@pytest.mark.slow
def test_two_hundred_translations_in_training_take_less_than_100_megabytes_more():
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert process.returncode == 0, process.stderr
    assert float(process.stdout) < 100
