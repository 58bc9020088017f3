"""Texts as tensors, in batches of like length."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from kformer.errors import InputError


def checked_strings(name: str, texts: Sequence[str]) -> list[str]:
    """The texts as a list.

    Raises:
        InputError: they are not strings; they are called `name`.
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} must be a list of strings. Received: {texts!r}")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"{name} must be strings. Received: {text!r} as number {number}")
    return texts


def strings_tensor(texts: Sequence[str], rows: Sequence[int] | None = None) -> tf.Tensor:
    """The texts, or those of some rows, as a string tensor."""
    chosen = texts if rows is None else [texts[row] for row in rows]
    # A lone surrogate has no UTF-8: passed on as bytes, it becomes U+FFFD.
    return tf.constant([text.encode("utf-8", "surrogatepass") for text in chosen], tf.string)


def batches_of_like_length(
    lengths: np.ndarray, width: int, max_tokens: int, max_rows: int | None = None
) -> Iterator[np.ndarray]:
    """Row numbers in batches of like length, so that little is padded; no empty rows.

    Args:
        lengths: tokens of each row.
        width: hypotheses of each.
        max_tokens: most tokens, padding and an end included, times hypotheses, of a batch.
        max_rows: most rows of a batch. None: no limit.
    """
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    start = 0
    for end in range(1, len(order) + 1):
        longest = lengths[order[min(end, len(order) - 1)]] + 1
        full = (end + 1 - start) * longest * width > max_tokens
        if end == len(order) or end - start == (max_rows or math.inf) or full:
            yield order[start:end]
            start = end


def row_by_row(
    batches: Iterable[np.ndarray], function: Callable[[np.ndarray], Mapping[str, tf.Tensor]]
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """The number of each row, and what a function of a batch's row numbers gives for it."""
    for rows in batches:
        arrays = {name: tensor.numpy() for name, tensor in function(rows).items()}
        for number, row in enumerate(rows):
            yield row, {name: array[number] for name, array in arrays.items()}
