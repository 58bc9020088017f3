"""Vocabularies that others have learned, with our reserved ids."""

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.subwords.encode import load
from kformer.subwords.pieces import RESERVED_PIECES

_Piece = ModelProto.SentencePiece
_TYPES = (_Piece.CONTROL, _Piece.UNKNOWN, _Piece.CONTROL, _Piece.CONTROL)


def adopt(model: bytes) -> bytes:
    """A SentencePiece model of any make, with ids 0 to 3 for padding, unknown, start and end.

    Its pieces for these four, whatever their names and ids are, give way to ours; so does every
    piece named like one of ours. The others follow in their order. Scores, normalizer and the
    way of splitting stay, so texts are cut as they were. Only a text that spells the name of a
    reserved piece may be cut otherwise: a text never tokenizes to a reserved id. A typed "▁",
    which the tokenizers tell from a space by U+0001, goes lost where their normalizer drops
    control characters.

    Args:
        model: a serialized `ModelProto`: unigram, bpe, word or char, with or without bytes to
            fall back to.

    Returns:
        A serialized `ModelProto`; the given one, byte for byte, where its reserved ids are ours.

    Raises:
        ValueError: `model` is not a SentencePiece model.
    """
    load(model)  # Refuses what is none.
    proto = ModelProto.FromString(model)
    if [(piece.piece, piece.type) for piece in proto.pieces[:4]] == list(
        zip(RESERVED_PIECES, _TYPES, strict=True)
    ):
        return model
    trainer = proto.trainer_spec
    given = {trainer.pad_piece, trainer.bos_piece, trainer.eos_piece}
    others = [
        piece
        for piece in proto.pieces
        if piece.type != _Piece.UNKNOWN
        and piece.piece not in RESERVED_PIECES
        and not (piece.type == _Piece.CONTROL and piece.piece in given)
    ]
    del proto.pieces[:]
    for name, type in zip(RESERVED_PIECES, _TYPES, strict=True):
        proto.pieces.add(piece=name, score=0.0, type=type)
    proto.pieces.extend(others)
    trainer.vocab_size = len(proto.pieces)
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = (
        PAD_ID, UNK_ID, START_ID, END_ID
    )  # fmt: skip
    for field in ("pad_piece", "unk_piece", "bos_piece", "eos_piece", "unk_surface"):
        trainer.ClearField(field)  # What is not given is named as ours are.
    return proto.SerializeToString(deterministic=True)
