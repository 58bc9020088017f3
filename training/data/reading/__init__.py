"""Parallel text as people have it, as a stream of rows: TSV, two files, JSON lines, TMX, gettext,
Hugging Face datasets, each also compressed.

`sources.resolve` turns what a user wrote into files and rows, `pairs.rows_of` does it for pairs
of Python. This file imports nothing, and nothing here needs TensorFlow.
"""
