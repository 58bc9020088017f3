"""From parallel text to batches: read, clean, split, learn a vocabulary, tokenise once, plan.

This file imports nothing: the processes that clean and tokenise start without TensorFlow.
"""
