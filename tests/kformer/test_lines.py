"""Lines of command lines, in lists: all at once, or as they come."""

import queue
from itertools import chain

import pytest

from kformer.lines import as_they_come, in_lists


@pytest.mark.parametrize("lists", [in_lists, as_they_come])
@pytest.mark.parametrize("number", [0, 1, 3, 7])
def test_lists_hold_every_item_in_order_and_no_more_than_they_may(lists, number):
    found = list(lists(iter(range(number)), 3))
    assert list(chain(*found)) == list(range(number))
    assert all(1 <= len(items) <= 3 for items in found)


def test_what_has_arrived_does_not_wait_for_what_comes_later():
    arriving = queue.Queue()
    lists = as_they_come(iter(arriving.get, "end"), 100)
    for line in ("one", "two"):
        # The second is sent only after the first is answered.
        arriving.put(line)
        assert next(lists) == [line]
    arriving.put("end")
    assert list(lists) == []


def test_an_error_comes_after_the_items_before_it():
    def lines():
        yield "one"
        raise OSError("gone")

    lists = as_they_come(lines(), 100)
    assert next(lists) == ["one"]
    with pytest.raises(OSError, match="gone"):
        next(lists)
