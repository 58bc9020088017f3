"""Text to ids and back, inside the graph; knows no model."""

from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.subwords.pieces import RESERVED_PIECES
from kformer.text.long import Part, split_long
from kformer.text.normalize import normalize
from kformer.text.pair import Tokenizers, load_tokenizer
from kformer.text.sentencepiece import SentencePieceTokenizer
from kformer.text.tokenizer import Tokenizer
from kformer.text.vectors import Coverage, embedding_matrix, open_vectors
from kformer.text.words import WordTokenizer

__all__ = [
    "END_ID",
    "PAD_ID",
    "RESERVED_PIECES",
    "START_ID",
    "UNK_ID",
    "Coverage",
    "Part",
    "SentencePieceTokenizer",
    "Tokenizer",
    "Tokenizers",
    "WordTokenizer",
    "embedding_matrix",
    "load_tokenizer",
    "normalize",
    "open_vectors",
    "split_long",
]
