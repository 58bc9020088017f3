"""Subwords: a vocabulary learned by SentencePiece, in which no character is ever unknown."""

import io
import itertools
import random
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2

from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.text.normalize import normalized_batches
from kformer.text.tokenizer import RESERVED_PIECES, Tokenizer

# SentencePiece writes a space as U+2581, so it would give a "▁" in a text back as a space.
# Normalized text has no control characters: one of them can stand for "▁" and lose nothing.
_SPACE_MARK, _TYPED_SPACE_MARK = "\u2581", "\x01"
# The trainer's own mark for rare characters: it would skip every line that holds one.
_TRAINER_UNKNOWN = "\u2585"
# "U+0002 becomes a space": no normalized text has it, so nothing changes. With no rule at all
# TensorFlow Text prints a note on standard error for each tokenizer it loads.
_NO_RULES = "2\t20\n"
# BPE counts positions within a word in 16 bits, and Chinese or Thai lines are single words.
_LONGEST_LINE = 4000


class SentencePieceTokenizer(Tokenizer):
    """Unigram or BPE subwords (Kudo and Richardson 2018, arXiv:1808.06226).

    Characters outside the vocabulary fall back to bytes, so `detokenize(tokenize(x))` equals
    `normalize(x)` for every text, and a reserved name such as "</s>" in a text is plain text.

    Among the pieces "▁" is a space, as SentencePiece writes it; a "▁" in a text is U+0001 there.

    `keras.utils.set_random_seed`, `tf.random.set_seed` and `keras.backend.clear_session` free the
    native model of every tokenizer alive (using one afterwards raises
    `tf.errors.NotFoundError`): seed first, then build tokenizers.

    Args:
        model: a serialized SentencePiece `ModelProto` with our reserved ids, as `learn` makes it.

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
            reserved = self.pieces()[: len(RESERVED_PIECES)]
        except tf.errors.OpError as error:
            raise ValueError("it is not a SentencePiece model") from error
        if reserved != list(RESERVED_PIECES):
            raise ValueError(f"its first ids must be {RESERVED_PIECES}. Received: {reserved}")

    @classmethod
    def learn(
        cls,
        texts: Iterable[str | bytes],
        vocab_size: int,
        model_type: Literal["unigram", "bpe"] = "unigram",
        character_coverage: float = 0.9995,
        max_sentences: int | None = None,
        seed: int = 0,
    ) -> Self:
        """Learns a vocabulary. The same arguments give the same one, on any number of cores.

        Args:
            texts: lines of text, read once.
            vocab_size: most ids wanted, reserved ones and 256 bytes included. Texts with fewer
                subwords to offer give a smaller vocabulary.
            model_type: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016).
            character_coverage: share of the running characters that are spelled with pieces of
                their own; the rarest ones beyond it are spelled in bytes.
            max_sentences: learn from a random sample of this many lines, which bounds the memory;
                None takes all of them.
            seed: of that sample.

        Raises:
            InputError: there is no text, an argument is out of range, or `vocab_size` cannot hold
                the reserved ids, the bytes and the characters.
        """
        if model_type not in ("unigram", "bpe"):
            raise InputError(f"model_type must be 'unigram' or 'bpe'. Received: {model_type!r}")
        if not 0.9 <= character_coverage <= 1:
            raise InputError(
                f"character_coverage must be from 0.9 to 1. Received: {character_coverage!r}"
            )
        if max_sentences is not None and max_sentences < 1:
            raise InputError(f"max_sentences must be at least 1. Received: {max_sentences}")
        floor = len(RESERVED_PIECES) + 256
        if vocab_size <= floor:
            raise InputError(
                f"vocab_size must be above {floor} (4 reserved ids, 256 bytes, then the "
                f"characters). Received: {vocab_size}"
            )
        lines = _trainer_lines(texts)
        if max_sentences is not None:
            lines = iter(_sample(lines, max_sentences, seed))
        first = next(lines, None)
        if first is None:
            raise InputError("no text to learn a vocabulary from: texts is empty or all blank")

        errors: list[BaseException] = []
        try:
            model = _train(
                _keep_error(itertools.chain([first], lines), errors),
                model_type=model_type,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=character_coverage,
                required_chars=_SPACE_MARK,  # Rare in Chinese or Thai, but it begins every text.
                byte_fallback=True,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                remove_extra_whitespaces=False,
                max_sentence_length=4 * _LONGEST_LINE,
                num_threads=16,  # Fixed: sums over threads round differently for another number.
                minloglevel=2,
            )
        except RuntimeError as error:
            if errors:
                raise errors[0] from None
            too_small = re.search(r"required_chars\. (\d+) vs (\d+)", str(error))
            if not too_small:
                raise
            raise InputError(
                f"vocab_size must be at least {too_small[2]} for these texts (4 reserved ids, 256 "
                f"bytes and their characters): raise it or lower character_coverage. "
                f"Received: {vocab_size}"
            ) from error
        return cls(model)

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
            after_space = after_space or piece.startswith(_SPACE_MARK)
            # A space alone belongs to the word that it comes before.
            if after_space and piece.strip(_SPACE_MARK):
                word, after_space = word + 1, False
            words.append(word + after_space)
        return words

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(texts, _SPACE_MARK, _TYPED_SPACE_MARK)
        return self._sentencepiece.tokenize(texts)

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        texts = self._sentencepiece.detokenize(ids)
        return tf.strings.regex_replace(texts, _TYPED_SPACE_MARK, _SPACE_MARK)

    def _to_bytes(self) -> bytes:
        return self._model

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        return cls(content)


def _trainer_lines(texts: Iterable[str | bytes]) -> Iterator[str]:
    """Normalized, non-empty lines that the trainer takes without skipping any."""
    for batch in normalized_batches(texts):
        for line in batch.numpy():
            line = line.decode().replace(_SPACE_MARK, _TYPED_SPACE_MARK)
            line = line.replace(_TRAINER_UNKNOWN, " ")
            for start in range(0, len(line), _LONGEST_LINE):
                yield line[start : start + _LONGEST_LINE]


def _sample(lines: Iterator[str], size: int, seed: int) -> list[str]:
    """Reservoir sampling. SentencePiece's own takes no seed from Python."""
    choose = random.Random(seed)
    sample: list[str] = []
    for index, line in enumerate(lines):
        if index < size:
            sample.append(line)
        elif (place := choose.randrange(index + 1)) < size:
            sample[place] = line
    return sample


def _train(lines: Iterator[str], **options: Any) -> bytes:
    """The model that the trainer makes of texts that are normalized already."""
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text(_NO_RULES)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=model,
            normalization_rule_tsv=str(rules),
            **options,
        )
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # The path of a file that is gone.
    return proto.SerializeToString(deterministic=True)


def _keep_error(lines: Iterator[str], errors: list[BaseException]) -> Iterator[str]:
    """Notes what reading the texts raised: the trainer makes a RuntimeError of it."""
    try:
        yield from lines
    except BaseException as error:
        errors.append(error)
        raise
