"""Tells English from German, and shows by which words: `python -m examples.classify`.

A text classifier of three layers: embeddings, attention that pools them into one vector, and a
unit that decides. Its attention weights say what it looked at.
"""

from pathlib import Path

import keras

from kformer.ids import PAD_ID
from kformer.layers import PositionalEmbedding, SimpleAttention, padding_mask
from kformer.text import WordTokenizer

CORPUS = Path(__file__).parents[1] / "training" / "corpora" / "libreoffice-help.en-de"
LONGEST = 50
LANGUAGES = ("English", "German")


def read(part, pairs=None):
    """Lines of text, and 1 for the German ones."""
    rows = (CORPUS / f"{part}.tsv").read_text("utf-8").split("\n")[:pairs]
    sides = [side.split("\t") for side in rows if side]
    texts = [text for pair in sides for text in pair]
    return texts, keras.ops.tile([0.0, 1.0], len(sides))


def build(vocab_size):
    """The classifier, and a model of the same layers that gives its attention weights."""
    ids = keras.Input([None], dtype="int32")
    x = PositionalEmbedding(vocab_size, d_model=64, positions="none", dropout=0.1)(ids)
    pooled, weights = SimpleAttention(32, score="additive")(
        x, padding_mask(ids), return_weights=True
    )
    is_german = keras.layers.Dense(1, activation="sigmoid")(pooled)
    return keras.Model(ids, is_german), keras.Model(ids, weights)


def main(pairs=4000, epochs=2):
    """Trains on so many pairs of sentences; returns the accuracy on the test text."""
    keras.utils.set_random_seed(1)
    texts, labels = read("train", pairs)
    tokenizer = WordTokenizer.learn(texts, min_frequency=2)

    def to_ids(texts):
        return tokenizer.tokenize(texts).to_tensor(PAD_ID, shape=[None, LONGEST])

    classifier, attention = build(tokenizer.vocab_size)
    classifier.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    classifier.fit(to_ids(texts), labels, batch_size=64, epochs=epochs, verbose=2)

    texts, labels = read("test")
    _, accuracy = classifier.evaluate(to_ids(texts), labels, verbose=0)
    print(f"\naccuracy on {len(texts):,} lines of test text: {accuracy:.1%}\n")

    pieces = tokenizer.pieces()
    ids = to_ids(texts[:6])
    for row, german, weights in zip(ids.numpy(), classifier(ids), attention(ids), strict=True):
        ranked = sorted(zip(weights.numpy(), row, strict=True), reverse=True)[:3]
        words = ", ".join(f"{pieces[id]} {weight:.0%}" for weight, id in ranked)
        text = tokenizer.detokenize([row]).numpy()[0].decode()
        print(f"{LANGUAGES[int(german[0] > 0.5)]}: {text}\n    looked at: {words}")
    return accuracy


if __name__ == "__main__":
    main()
