"""Subword regularisation: the training text split another way each epoch."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from training.data.encoding import Encoders
from training.data.rows import Pair
from training.data.store import TokenStore
from training.data.tokenising import build_store


@dataclass
class SampledStore:
    """A store for each epoch, in which texts are split one of many ways.

    The tokens of an epoch are a pure function of (text, vocabulary, seed, epoch). While an epoch
    is trained on, the next is made beside it; those that are over are removed.

    Kudo 2018, arXiv:1804.10959, for unigram vocabularies; BPE-dropout (Provilkov et al. 2020,
    arXiv:1910.13267) for byte pairs.

    Args:
        pairs: reads the text that `usual` was made of.
        load: loads the encoders.
        usual: the store without sampling, which says what pairs there are.
        alpha: see `Encoder.sample`.
        seed: of the run.
        folder: where the stores are made; what it holds is removed.
    """

    pairs: Callable[[], Iterator[Pair]]
    load: Callable[[], Encoders]
    usual: TokenStore
    alpha: float
    seed: int
    folder: Path
    _stores: dict[int, Future[TokenStore]] = field(default_factory=dict, init=False)

    def __post_init__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self._maker = ThreadPoolExecutor(1, "sampling")

    def epoch(self, epoch: int) -> TokenStore:
        """The tokens of an epoch."""
        for number in (epoch, epoch + 1):
            if number not in self._stores:
                self._stores[number] = self._maker.submit(self._make, number)
        for number in [number for number in self._stores if number not in (epoch, epoch + 1)]:
            self._stores.pop(number).cancel()
            # Whoever still reads it has it mapped.
            shutil.rmtree(self._path(number), ignore_errors=True)
        return self._stores[epoch].result()

    def close(self) -> None:
        """Stops what is being made, and removes what was."""
        self._maker.shutdown(cancel_futures=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, epoch: int) -> Path:
        return self.folder / str(epoch)

    def _make(self, epoch: int) -> TokenStore:
        shutil.rmtree(self._path(epoch), ignore_errors=True)
        return build_store(
            self.pairs(),
            self.load,
            self._path(epoch),
            self.usual.meta.max_length,
            sampling=self.alpha,
            seed=(self.seed, epoch),
        )
