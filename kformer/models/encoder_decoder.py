"""What models of an encoder and a decoder have in common: their tables, and how they are called."""

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
