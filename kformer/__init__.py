"""Transformer translation models with Keras 3 on TensorFlow: layers, models, text and search."""

__version__ = "0.1.0"
