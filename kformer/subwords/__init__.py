"""SentencePiece vocabularies and text to ids with them, without TensorFlow.

For the processes that prepare a corpus and must start at once. The ids are those of the tokenizers
in `kformer.text`, which do the same inside the graph. This file imports nothing.
"""
