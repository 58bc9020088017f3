"""What models of an encoder and a decoder have in common: their tables, and how they are called."""

from kformer.choices import Tying
from kformer.models.base import SequenceModel


class EncoderDecoder(SequenceModel):
    """A model whose decoder reads what its encoder made of the source.

    It has `encode`, `decode`, `source_embedding`, `target_embedding`, `output_projection`, and the
    argument `tie`, which says which of their tables are one.
    """

    def call(self, inputs, training=False):
        source_ids, target_ids = inputs
        encoded = self.encode(source_ids, training=training)
        return self.decode(encoded, target_ids, training=training)

    def _logits(self, x):
        tied = self.tie != "none"
        return self.output_projection(x, self.target_embedding.embedding if tied else None)


def check_tying(tie: str, source_vocab_size: int, target_vocab_size: int) -> None:
    """Refuses tables that cannot be one.

    Raises:
        ValueError: naming the arguments.
    """
    if tie not in Tying.__args__:
        raise ValueError(f"`tie` must be one of {', '.join(Tying.__args__)}. Received: tie={tie!r}")
    if tie == "all" and source_vocab_size != target_vocab_size:
        raise ValueError(
            '`tie="all"` needs one vocabulary for both languages. Received: '
            f"source_vocab_size={source_vocab_size}, target_vocab_size={target_vocab_size}"
        )
