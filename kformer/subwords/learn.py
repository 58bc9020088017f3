"""Vocabularies learned by SentencePiece, in which no character is ever unknown."""

import io
import itertools
import random
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.normal_form import normal_form, strings
from kformer.subwords.pieces import RESERVED_PIECES, SPACE_MARK, TYPED_SPACE_MARK

SAMPLE_SIZE = 500_000
"""Most lines to learn from by default.

With lines of 85 characters the process then needs 0.9 GB for 32,000 unigrams (21 bytes a
character), 0.4 GB for as many of BPE and 0.2 GB for characters.
"""

Kind = Literal["unigram", "bpe", "character"]

# As the trainer calls them. A space before the text makes a word that begins it like any other;
# characters would gain nothing by it.
_MODEL_TYPES = {
    "unigram": {"model_type": "unigram"},
    "bpe": {"model_type": "bpe"},
    "character": {"model_type": "char", "add_dummy_prefix": False},
}
# The trainer's own mark for rare characters: it would skip every line that holds one.
_TRAINER_UNKNOWN = "\u2585"
# "U+0002 becomes a space": no normal form has it, so nothing changes. With no rule at all
# TensorFlow Text prints a note on standard error for each tokenizer it loads.
_NO_RULES = "2\t20\n"
# BPE counts positions within a word in 16 bits, and Chinese or Thai lines are single words.
_LONGEST_LINE = 4000
_BYTES = 256


def learn(
    texts: Iterable[str | bytes],
    vocab_size: int,
    kind: Kind = "unigram",
    character_coverage: float = 0.9995,
    max_sentences: int | None = SAMPLE_SIZE,
    seed: int = 0,
) -> bytes:
    """Learns a vocabulary. The same arguments give the same one, on any number of cores.

    Args:
        texts: lines of text (bytes are read as UTF-8), read once.
        vocab_size: most ids wanted, reserved ones and 256 bytes included. Texts with fewer
            pieces to offer give a smaller vocabulary.
        kind: "unigram" (Kudo 2018, arXiv:1804.10959), "bpe" (Sennrich et al. 2016,
            arXiv:1508.07909), or "character": the most frequent characters, each by itself.
        character_coverage: share of the running characters that are spelled with pieces of
            their own; the rarest ones beyond it are spelled in bytes.
        max_sentences: learn from a random sample of this many lines, which bounds the memory;
            None takes all of them.
        seed: of that sample.

    Returns:
        A serialized SentencePiece `ModelProto` for text in normal form.

    Raises:
        InputError: there is no text, an argument is out of range, or `vocab_size` cannot hold
            the reserved ids, the bytes and the characters.
    """
    if kind not in _MODEL_TYPES:
        raise InputError(f"a vocabulary is 'unigram', 'bpe' or 'character'. Received: {kind!r}")
    if not 0.98 <= character_coverage <= 1:
        raise InputError(
            f"character_coverage must be from 0.98 to 1. Received: {character_coverage!r}"
        )
    if max_sentences is not None and max_sentences < 1:
        raise InputError(f"max_sentences must be at least 1. Received: {max_sentences}")
    floor = len(RESERVED_PIECES) + _BYTES
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
        return _train(
            _keep_error(itertools.chain([first], lines), errors),
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            **_MODEL_TYPES[kind],
        )
    except RuntimeError as error:
        if errors:
            raise errors[0] from None
        too_small = re.search(r"required_chars\. (\d+) vs (\d+)", str(error))
        if not too_small:
            raise
        raise InputError(
            f"vocab_size must be at least {too_small[2]} for these texts (4 reserved ids, 256 "
            f"bytes and their characters): raise it. "
            f"Received: {vocab_size}"
        ) from error


def byte_model() -> bytes:
    """The vocabulary that needs no learning: 4 reserved ids and the 256 bytes of UTF-8.

    A space is a byte like any other; see ByT5 (Xue et al. 2022, arXiv:2105.13626).

    Returns:
        A serialized SentencePiece `ModelProto` for text in normal form.
    """
    model = ModelProto.FromString(learn(["a"], 300, "character"))
    floor = len(RESERVED_PIECES) + _BYTES
    del model.pieces[floor:]  # Without characters every one of them falls back to bytes.
    model.trainer_spec.vocab_size = floor
    _spell_spaces(model)
    return model.SerializeToString(deterministic=True)


def _trainer_lines(texts: Iterable[str | bytes]) -> Iterator[str]:
    """Non-empty lines in normal form that the trainer takes without skipping any."""
    for text in strings(texts):
        line = normal_form(text).replace(SPACE_MARK, TYPED_SPACE_MARK)
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
    """The model that the trainer makes of texts that are in normal form already."""
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text(_NO_RULES)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=model,
            normalization_rule_tsv=str(rules),
            hard_vocab_limit=False,
            required_chars=SPACE_MARK,  # Rare in Chinese or Thai, but it begins every text.
            byte_fallback=True,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            remove_extra_whitespaces=False,
            max_sentence_length=4 * _LONGEST_LINE,
            num_threads=16,  # Fixed: sums over threads round differently for another number.
            minloglevel=2,
            **options,
        )
    proto = ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # The path of a file that is gone.
    _spell_spaces(proto)
    return proto.SerializeToString(deterministic=True)


def _spell_spaces(model: ModelProto) -> None:
    """Sees to it that a space without a piece is its own byte, not the three bytes of "▁"."""
    if all(piece.piece != SPACE_MARK for piece in model.pieces):
        model.normalizer_spec.escape_whitespaces = False


def _keep_error(lines: Iterator[str], errors: list[BaseException]) -> Iterator[str]:
    """Notes what reading the texts raised: the trainer makes a RuntimeError of it."""
    try:
        yield from lines
    except BaseException as error:
        errors.append(error)
        raise
