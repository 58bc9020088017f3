"""How SentencePiece spells: the names of the first ids, and what stands for a space."""

from collections.abc import Sequence

RESERVED_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
"""The names of ids 0 to 3. No text ever tokenizes to one of them except `<unk>`."""

SPACE_MARK = "\u2581"
"""A space among the pieces."""

TYPED_SPACE_MARK = "\x01"
"""A typed "▁" among the pieces.

SentencePiece would give it back as a space. Normal form has no control characters, so that one of
them can stand for it and lose nothing.
"""

SPACE_BYTE = "<0x20>"
"""A space among pieces that are bytes."""


def check_reserved(pieces: Sequence[str]) -> None:
    """Raises ValueError where a vocabulary does not begin with the reserved pieces."""
    first = tuple(pieces[: len(RESERVED_PIECES)])
    if first != RESERVED_PIECES:
        raise ValueError(f"its first ids must be {RESERVED_PIECES}. Received: {first}")
