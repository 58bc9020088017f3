import numpy as np

from kformer.alignment import NO_WORD, Alignment


def alignment(weights, source_words, target_words):
    return Alignment(
        [f"s{i}" for i in range(len(source_words))],
        [f"t{i}" for i in range(len(target_words))],
        source_words,
        target_words,
        np.array(weights, np.float32),
    )


def test_pieces_of_a_word_are_weighed_together_and_the_end_counts_for_nothing():
    """Two source pieces of 0.3 outweigh one of 0.35; most goes to the end, which is no word."""
    one = alignment(
        [[0.3, 0.3, 0.35, 0.05], [0.0, 0.1, 0.15, 0.75], [0.0, 0.0, 0.4, 0.6]],
        [0, 0, 1, NO_WORD],
        [0, 1, 1],
    )
    assert one.links == [(0, 0), (1, 1)]
    assert str(one) == "0-0 1-1"


def test_links_are_written_in_the_order_of_the_source():
    one = alignment([[0.1, 0.9], [0.8, 0.2]], [0, 1], [0, 1])
    assert one.links == [(1, 0), (0, 1)] and str(one) == "0-1 1-0"


def test_a_side_without_words_has_no_links():
    assert alignment([[1.0]], [NO_WORD], [0]).links == []
    assert alignment([[1.0]], [0], [NO_WORD]).links == []
    assert alignment(np.zeros([0, 1]), [0], []).links == []


def test_parts_put_together_keep_their_links_and_see_nothing_of_each_other():
    one = alignment([[0.1, 0.9, 0.0], [0.8, 0.2, 0.0]], [0, 1, NO_WORD], [0, 1])
    other = alignment([[0.7, 0.3]], [0, NO_WORD], [0])
    whole = one.followed_by(other, apart=True)
    assert whole.links == [(1, 0), (0, 1), (2, 2)]
    assert whole.source_tokens == ["s0", "s1", "s2", "s0", "s1"]
    np.testing.assert_array_equal(whole.weights[:2, 3:], 0)
    np.testing.assert_array_equal(whole.weights[2:, :3], 0)
    np.testing.assert_allclose(whole.weights.sum(axis=1), 1, atol=1e-6)


def test_a_word_cut_in_two_stays_one():
    one = alignment([[0.2, 0.8]], [0, 1], [0])
    other = alignment([[0.9, 0.1], [0.3, 0.7]], [0, 1], [0, 1])
    whole = one.followed_by(other, apart=False)
    assert (whole.source_words, whole.target_words) == ([0, 1, 1, 2], [0, 0, 1])
