"""Whole words and punctuation marks: a vocabulary one can read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import tensorflow as tf

from kformer.errors import InputError
from kformer.ids import UNK_ID
from kformer.subwords.pieces import RESERVED_PIECES
from kformer.text.normalize import normalized_batches
from kformer.text.tokenizer import Tokenizer

JOINER = "\u0387"
"""Begins a token that follows the one before it without a space: "don't" is `don ·' ·t`.

It looks like the middle dot U+00B7 but is the Greek U+0387, which NFC turns into U+00B7: a reader
sees it in the vocabulary, and no normalized text can contain it.
"""

# Words are runs of letters, digits and their marks. Everything else stands alone, and so do the
# characters of scripts that write no spaces, else whole sentences would be words.
_ALONE = r"((?:[\p{Han}\p{Hiragana}\p{Katakana}]|[^\p{L}\p{M}\p{N}\p{Cf} ])[\p{M}\p{Cf}]*)"
# A border between tokens; normalized text has no control characters.
_BORDER = "\x01"


class WordTokenizer(Tokenizer):
    """Words and punctuation, looked up in a table; what is not in it becomes `UNK_ID`.

    Texts whose tokens are all in the vocabulary come back exactly, except that runs of spaces
    come back as one space. Thai, Lao and Khmer, written without spaces, need subwords instead.

    Args:
        pieces: the vocabulary in the order of its ids, `RESERVED_PIECES` first.

    Raises:
        ValueError: the reserved pieces are not first, or a piece is empty, twice there, or
            contains a space or a line break.

    Example:
        tokenizer = WordTokenizer.learn(["I don't know."])
        tokenizer.pieces()[4:]  # ["I", "don", "know", "·'", "·.", "·t"]
    """

    suffix = ".txt"

    def __init__(self, pieces: Sequence[str]):
        super().__init__(name="word_tokenizer")
        _check_pieces(pieces)
        self._pieces = tuple(pieces)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(self._pieces), tf.range(len(self._pieces), dtype=tf.int32)
            ),
            default_value=UNK_ID,
        )
        self._shown = tf.constant(["⁇" if i == UNK_ID else p for i, p in enumerate(pieces)])

    @classmethod
    def learn(
        cls,
        texts: Iterable[str | bytes],
        vocab_size: int | None = None,
        min_frequency: int = 1,
    ) -> Self:
        """Takes the most frequent tokens; among equals, in the order of their code points.

        Args:
            texts: lines of text, read once.
            vocab_size: most ids wanted, the 4 reserved ones included; None sets no limit.
            min_frequency: leave out tokens seen fewer times than this.

        Raises:
            InputError: there is no text, `vocab_size` has no room for a word, or no word is as
                frequent as `min_frequency`.
        """
        reserved = len(RESERVED_PIECES)
        if vocab_size is not None and vocab_size <= reserved:
            raise InputError(
                f"vocab_size must be above {reserved}, the number of reserved ids. "
                f"Received: {vocab_size}"
            )
        counts = Counter()
        for batch in normalized_batches(texts):
            counts.update(_tokens(batch).flat_values.numpy())
        if not counts:
            raise InputError("no text to learn a vocabulary from: texts is empty or all blank")
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        frequent = [token.decode() for token in ranked if counts[token] >= min_frequency]
        if not frequent:
            raise InputError(
                f"min_frequency must be at most {counts[ranked[0]]}, the count of the most "
                f"frequent word. Received: {min_frequency}"
            )
        limit = None if vocab_size is None else vocab_size - reserved
        return cls([*RESERVED_PIECES, *frequent[:limit]])

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def pieces(self) -> list[str]:
        return list(self._pieces)

    @staticmethod
    def word_indices(pieces: Sequence[str]) -> list[int]:
        words, word = [], -1
        for piece in pieces:
            if word < 0 or not piece.startswith(JOINER):
                word += 1
            words.append(word)
        return words

    @staticmethod
    def whole_word(piece: str) -> str | None:
        return piece.removeprefix(JOINER) or None

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return tf.ragged.map_flat_values(self._table.lookup, _tokens(texts))

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        tokens = tf.ragged.map_flat_values(lambda flat: tf.gather(self._shown, flat), ids)
        texts = tf.strings.reduce_join(tokens, axis=-1, separator=" ")
        return tf.strings.regex_replace(texts, f"(?:^| ){JOINER}", "")

    def _to_bytes(self) -> bytes:
        return "".join(f"{piece}\n" for piece in self._pieces).encode()

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        # Not splitlines(): it would also split at U+0085 and others. An editor may have added CRs.
        lines = content.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
        return cls(lines)


def _tokens(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits normalized texts `(batch,)` into string tokens `(batch, None)`."""
    texts = tf.strings.regex_replace(texts, _ALONE, rf"{_BORDER}\1{_BORDER}")
    texts = tf.strings.regex_replace(texts, f"{_BORDER}* +{_BORDER}*", " ")
    texts = tf.strings.regex_replace(texts, f"^{_BORDER}+|{_BORDER}+$", "")
    texts = tf.strings.regex_replace(texts, f"{_BORDER}+", f" {JOINER}")
    return tf.strings.split(texts)


def _check_pieces(pieces: Sequence[str]) -> None:
    reserved = len(RESERVED_PIECES)
    if tuple(pieces[:reserved]) != RESERVED_PIECES:
        raise ValueError(
            f"its first lines must be {RESERVED_PIECES}. Received: {tuple(pieces[:reserved])}"
        )
    seen: dict[str, int] = {}
    for number, piece in enumerate(pieces, start=1):
        if piece.split() != [piece]:
            raise ValueError(f"line {number} must be one word without spaces. Received: {piece!r}")
        if piece in seen:
            raise ValueError(f"line {number} repeats {piece!r} of line {seen[piece]}")
        seen[piece] = number
