"""Reading a translation out of a model. Works on the stepping protocol alone; knows no text."""

from kformer.search.greedy import greedy_search
from kformer.search.protocol import SearchResult

__all__ = ["SearchResult", "greedy_search"]
