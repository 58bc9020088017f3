"""Training: from a configuration and parallel text to a run folder that translates."""
