"""Optimizers whose update is that of the whole batch, however it is split, or none."""

from kformer.optimizers.adam import Adam
from kformer.optimizers.muon import Muon

__all__ = ["Adam", "Muon"]
