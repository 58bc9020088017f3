"""Experiments: variants of a run, trained over seeds, translated and compared."""
