"""Subwords, characters or bytes: vocabularies of SentencePiece, in the graph."""

from collections.abc import Iterable, Sequence
from typing import Self

import tensorflow as tf
import tensorflow_text as tf_text

from kformer.subwords.learn import SAMPLE_SIZE, Kind, byte_model, learn
from kformer.subwords.pieces import SPACE_BYTE, SPACE_MARK, TYPED_SPACE_MARK, check_reserved
from kformer.text.tokenizer import Tokenizer


class SentencePieceTokenizer(Tokenizer):
    """Subwords, characters or bytes (SentencePiece: Kudo and Richardson 2018, arXiv:1808.06226).

    Characters outside the vocabulary fall back to bytes, so `detokenize(tokenize(x))` equals
    `normalize(x)` for every text, and a reserved name such as "</s>" in a text is plain text.
    An adopted vocabulary may be without bytes, and brings a normalizer of its own.

    Among the pieces "▁" is a space, as SentencePiece writes it; a "▁" in a text is U+0001 there.
    Where a space has no piece it is the byte "<0x20>".

    `keras.utils.set_random_seed`, `tf.random.set_seed` and `keras.backend.clear_session` free the
    native model of every tokenizer alive (using one afterwards raises
    `tf.errors.NotFoundError`): seed first, then build tokenizers.

    Args:
        model: a serialized SentencePiece `ModelProto` with our reserved ids, as `learn`,
            `byte_model` and `adopt` of `kformer.subwords` make it.

    Raises:
        ValueError: `model` is something else.

    Example:
        tokenizer = SentencePieceTokenizer.learn(lines, vocab_size=8000)
        ids = tokenizer.tokenize(["How are you?"])  # ragged (1, None)
    """

    suffix = ".model"

    def __init__(self, model: bytes):
        super().__init__(name="sentencepiece_tokenizer")
        self._model = model
        try:
            if not model:
                raise ValueError("it is empty")
            # Not FastSentencepieceTokenizer: that one has no byte fallback.
            self._sentencepiece = tf_text.SentencepieceTokenizer(model)
            self._vocab_size = int(self._sentencepiece.vocab_size())
            pieces = self.pieces()
        except tf.errors.OpError as error:
            raise ValueError("it is not a SentencePiece model") from error
        check_reserved(pieces)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str | bytes],
        vocab_size: int,
        model_type: Kind = "unigram",
        character_coverage: float = 0.9995,
        max_sentences: int | None = SAMPLE_SIZE,
        seed: int = 0,
    ) -> Self:
        """The tokenizer of a vocabulary that `kformer.subwords.learn.learn` makes of texts.

        Args:
            model_type: the `kind` there: "unigram", "bpe" or "character". The others are as there.

        Raises:
            InputError: as there.
        """
        return cls(learn(texts, vocab_size, model_type, character_coverage, max_sentences, seed))

    @classmethod
    def of_bytes(cls) -> Self:
        """The tokenizer whose ids are the bytes of UTF-8; there is nothing to learn."""
        return cls(byte_model())

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def pieces(self) -> list[str]:
        names = self._sentencepiece.id_to_string(tf.range(self._vocab_size)).numpy()
        return [name.decode() for name in names]

    @staticmethod
    def word_indices(pieces: Sequence[str]) -> list[int]:
        words, word, after_space = [], -1, True
        for piece in pieces:
            if piece == SPACE_BYTE or not piece.strip(SPACE_MARK):
                # A space alone belongs to the word that it comes before.
                words.append(word + 1)
                after_space = True
            else:
                word += after_space or piece.startswith(SPACE_MARK)
                words.append(word)
                after_space = piece.endswith(SPACE_MARK)
        return words

    @staticmethod
    def whole_word(piece: str) -> str | None:
        word = piece.removeprefix(SPACE_MARK)
        if not word or SPACE_MARK in word:
            return None
        # Punctuation stands by itself wherever it is, letters only after a space.
        whole = word != piece or not any(map(str.isalnum, word))
        return word if whole else None

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(texts, SPACE_MARK, TYPED_SPACE_MARK)
        return self._sentencepiece.tokenize(texts)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        texts = self._sentencepiece.detokenize(ids)
        return tf.strings.regex_replace(texts, TYPED_SPACE_MARK, SPACE_MARK)

    def _to_bytes(self) -> bytes:
        return self._model

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        return cls(content)
