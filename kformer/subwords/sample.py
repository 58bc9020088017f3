"""Subword regularisation: the pieces of a text drawn by chance, the same for the same seed.

SentencePiece draws, too, but other pieces in each process, whatever its seed.
"""

import math
import random
from bisect import bisect
from collections.abc import Callable, Sequence

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from kformer.subwords.pieces import SPACE_MARK

_Piece = ModelProto.SentencePiece
# Gives the pieces of a word for a number drawn from [0, 1).
_Word = Callable[[float], Sequence[int]]


class Sampler:
    """Cuts words into pieces by chance. A piece never spans a space, so words are independent.

    Args:
        model: a serialized SentencePiece `ModelProto`, unigram or BPE.
        alpha: of unigrams the smoothing exponent of their probabilities, over all cuts (Kudo
            2018, arXiv:1804.10959); of BPE the probability of leaving out a merge (Provilkov et
            al. 2020, arXiv:1910.13267).
    """

    def __init__(self, model: bytes, alpha: float):
        proto = ModelProto.FromString(model)
        self._pieces = [piece.piece for piece in proto.pieces]
        self._begins_word = np.array([p.startswith(SPACE_MARK) for p in self._pieces])
        # Only these may be cut and put together; bytes, unknowns and symbols stay as they are.
        self._ids = {p.piece: i for i, p in enumerate(proto.pieces) if p.type == _Piece.NORMAL}
        self._scores = [piece.score for piece in proto.pieces]
        self._longest = max(map(len, self._ids), default=0)
        self._alpha = alpha
        bpe = proto.trainer_spec.model_type == TrainerSpec.BPE
        self._make = self._bpe_word if bpe else self._unigram_word
        self._words: dict[tuple[int, ...], _Word] = {}

    def __call__(
        self, ids: np.ndarray, lengths: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Other pieces for the same texts.

        Args:
            ids: of all texts, one after the other, int32 (ids,), cut in the likeliest way.
            lengths: how many each text has, int64 (texts,).
            seed: a number not below 0.

        Returns:
            The same for the new pieces.
        """
        if not len(ids):
            return ids, lengths
        begins = self._begins_word[ids]
        begins[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        starts = np.flatnonzero(begins)
        drawn = np.random.default_rng(seed).random(len(starts)).tolist()
        flat, ends = ids.tolist(), [*starts[1:].tolist(), len(ids)]
        sampled: list[int] = []
        counts = []
        for start, end, number in zip(starts.tolist(), ends, drawn, strict=True):
            key = tuple(flat[start:end])
            word = self._words.get(key)
            if word is None:
                word = self._words[key] = self._make(key)
            pieces = word(number)
            sampled += pieces
            counts.append(len(pieces))
        # Each word is of the text in which it starts.
        text = np.repeat(np.arange(len(lengths)), lengths)[starts]
        new_lengths = np.bincount(text, counts, len(lengths)).astype(np.int64)
        return np.array(sampled, np.int32), new_lengths

    def _symbols(self, key: tuple[int, ...]) -> list[tuple[str, int]]:
        """The smallest parts of a word: characters, and what is never cut: (text, id or -1)."""
        symbols = []
        for i in key:
            piece = self._pieces[i]
            if piece in self._ids:
                symbols += [(character, -1) for character in piece]
            else:
                symbols.append((piece, i))
        return symbols

    def _unigram_word(self, key: tuple[int, ...]) -> _Word:
        """Forward filtering, backward sampling: exact, in time linear in the word."""
        symbols = self._symbols(key)
        # edges[j]: where the pieces that end at j begin, their ids, and the summed weights.
        edges: list[tuple[list[int], list[int], list[float]]] = [([], [], [])]
        total = [0.0]  # Logarithms: long words underflow.
        for end in range(1, len(symbols) + 1):
            begins, ids, logs = [], [], []
            if symbols[end - 1][1] >= 0:
                begins, ids, logs = [end - 1], [symbols[end - 1][1]], [total[end - 1]]
            else:
                text = ""
                for start in range(end - 1, max(-1, end - 1 - self._longest), -1):
                    if symbols[start][1] >= 0:
                        break
                    text = symbols[start][0] + text
                    piece = self._ids.get(text)
                    if piece is not None and total[start] > -math.inf:
                        begins.append(start)
                        ids.append(piece)
                        logs.append(total[start] + self._alpha * self._scores[piece])
            most = max(logs, default=-math.inf)
            summed, sums = 0.0, []
            for log in logs:
                summed += math.exp(log - most)
                sums.append(summed)
            total.append(most + math.log(summed) if summed else -math.inf)
            edges.append((begins, ids, sums))

        def draw(number: float) -> list[int]:
            pieces, end = [], len(symbols)
            while end:
                begins, ids, sums = edges[end]
                if len(ids) == 1:
                    choice = 0
                else:
                    target = number * sums[-1]
                    choice = min(bisect(sums, target), len(sums) - 1)
                    # What is left of the number draws the next.
                    low = sums[choice - 1] if choice else 0.0
                    number = (target - low) / (sums[choice] - low)
                pieces.append(ids[choice])
                end = begins[choice]
            return pieces[::-1]

        # A character may be a piece only as part of others: then the word stays as it is.
        return draw if total[-1] > -math.inf else lambda number: key

    def _bpe_word(self, key: tuple[int, ...]) -> _Word:
        """Merges from the likeliest on, each left out by chance when its turn comes."""
        symbols = self._symbols(key)
        if any(i < 0 and text not in self._ids for text, i in symbols):
            return lambda number: key
        merges = self._merge(symbols, lambda: False)[1]
        # Mostly no merge is left out, and the word is cut as always.
        unchanged = (1 - self._alpha) ** merges

        def draw(number: float) -> Sequence[int]:
            if number < unchanged:
                return key
            chance = random.Random(number)
            # The first that is left out, given that there is one.
            first = chance.choices(range(merges), [(1 - self._alpha) ** i for i in range(merges)])[
                0
            ]
            turn = iter(range(merges))

            def left_out() -> bool:
                number_of_merge = next(turn, merges)
                if number_of_merge <= first:
                    return number_of_merge == first
                return chance.random() < self._alpha

            return self._merge(symbols, left_out)[0]

        return draw

    def _merge(
        self, symbols: list[tuple[str, int]], left_out: Callable[[], bool]
    ) -> tuple[list[int], int]:
        """Ids after all merges, and how many merges had their turn."""
        parts = [text for text, _ in symbols]
        fixed = [i for _, i in symbols]
        banned: set[tuple[int, ...]] = set()  # By where a pair begins, parts and ends.
        starts = list(range(len(parts) + 1))
        turns = 0
        while True:
            best, where = -math.inf, -1
            for i in range(len(parts) - 1):
                if fixed[i] >= 0 or fixed[i + 1] >= 0 or tuple(starts[i : i + 3]) in banned:
                    continue
                merged = self._ids.get(parts[i] + parts[i + 1])
                if merged is not None and self._scores[merged] > best:
                    best, where = self._scores[merged], i
            if where < 0:
                break
            turns += 1
            if left_out():
                banned.add(tuple(starts[where : where + 3]))
                continue
            parts[where : where + 2] = [parts[where] + parts[where + 1]]
            del fixed[where + 1], starts[where + 1]
        return [i if i >= 0 else self._ids[p] for p, i in zip(parts, fixed, strict=True)], turns
