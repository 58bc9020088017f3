"""How long texts may be: what fits a model's positions, and nothing less."""

from types import SimpleNamespace

import numpy as np
import pytest

from kformer.errors import InputError
from kformer.limits import Limits


def model(max_positions=None, one_sequence=False):
    return SimpleNamespace(max_positions=max_positions, one_sequence=one_sequence)


def source_ids(*lengths):
    ids = np.zeros([len(lengths), max(lengths) + 2], np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[: length + 1] = 5  # The end counts.
    return ids


def test_a_translation_may_be_as_long_as_factor_and_margin_say_and_a_prefix_comes_on_top():
    limits = Limits.of_model(model(), 1.5, 7, 100)
    found = limits.of_translations(source_ids(1, 9, 40), np.array([0, 3, 0], np.int32))
    assert found.numpy().tolist() == [10, 15 + 7 + 3, 61 + 7]
    capped = Limits.of_model(model(), 1.5, 7, 100, max_length=12)
    assert capped.of_translations(source_ids(1, 9)).numpy().tolist() == [10, 12]


def test_no_factor_overflows():
    limits = Limits.of_model(model(), 2.0**29, 2**29, 100)
    (most,) = limits.of_translations(source_ids(90)).numpy()
    assert 2**29 < most <= 2**30


@pytest.mark.parametrize("positions", [2, 3, 12, 13, 400])
@pytest.mark.parametrize("one_sequence", [False, True])
def test_whatever_is_read_written_and_scored_fits_the_positions(positions, one_sequence):
    limits = Limits.of_model(model(positions, one_sequence), 3, 20, 128)
    longest = limits.max_source_tokens
    assert 0 <= longest <= min(128, positions - 1)
    for length in range(longest + 1):
        (most,) = limits.of_translations(source_ids(length)).numpy()
        taken = most + (length + 1 if one_sequence else 0)
        asked = 3 * (length + 1) + 20
        assert taken <= positions and (most == asked or taken == positions)
    # Of a prefix as long as it may be, nothing is cut whatever the source is.
    (most,) = limits.of_translations(source_ids(longest), np.int32([positions])).numpy()
    assert limits.max_prefix_tokens == most
    for source in range(positions + 1):
        for target in range(positions + 1):
            ends = (source + 1, target + 1)
            fits = (sum(ends) if one_sequence else max(ends)) <= positions
            assert limits.can_score(np.array([source]), np.array([target])).tolist() == [fits]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 20, 9), "length_factor must not be negative"),
        ((2, 2**30, 9), "length_margin must not be negative, nor huge"),
        ((2, 20, 9, 0), "max_length must be at least 1. Received: 0"),
    ],
)
def test_what_is_out_of_range_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Limits.of_model(model(), *arguments)
