"""Reading translations out of a model. Works on the stepping protocol alone; knows no text."""

from kformer.search.beam import Beam
from kformer.search.constraints import Constraints
from kformer.search.paths import Greedy, Sample
from kformer.search.protocol import NONE, REAL, SearchResult, State, Steppable
from kformer.search.search import Search

__all__ = [
    "NONE",
    "REAL",
    "Beam",
    "Constraints",
    "Greedy",
    "Sample",
    "Search",
    "SearchResult",
    "State",
    "Steppable",
]
