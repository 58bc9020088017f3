"""What holds for every way to search."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.ids import END_ID
from kformer.search import Beam, Constraints, Greedy, Sample
from tests.kformer.search.references import HashModel

SEARCHES = [
    Greedy(),
    Beam(size=1),
    Beam(size=4, n_best=3),
    Beam(size=3, n_best=3, length_penalty=0.8, coverage_penalty=0.3),
    Sample(n=1, seed=5),
    Sample(n=3, temperature=0.7, top_k=4, top_p=0.9, min_p=0.05),
]
EVERY_SEARCH = pytest.mark.parametrize(
    "search", SEARCHES, ids=lambda search: f"{type(search).__name__}{search.width}"
)
TEXTS = np.arange(40, dtype="int32") * 13 + 2
LIMITS = np.arange(40, dtype="int32") % 23 + 1


def with_(search, **changes):
    return type(search)(**{**vars(search), **changes})


@EVERY_SEARCH
@pytest.mark.parametrize("compiled", [False, True])
def test_scores_are_those_of_the_model_for_the_tokens_reported(search, compiled, hypotheses):
    model = HashModel(end=-0.5)
    call = lambda texts, limits: search(model, model.encode(texts), limits)  # noqa: E731
    call = tf.function(call) if compiled else call
    ends = set()
    for text, limit, found in zip(
        TEXTS, LIMITS, hypotheses(call(tf.constant(TEXTS), tf.constant(LIMITS))), strict=True
    ):
        assert found
        for tokens, log_probabilities, total, _, ended in found:
            expected, _ = model.walk(text, tokens)
            np.testing.assert_allclose(log_probabilities, expected, atol=1e-4)
            assert total == pytest.approx(sum(expected), abs=1e-4)
            assert ended == (tokens[-1] == END_ID)
            assert ended or len(tokens) == limit
            assert len(tokens) <= limit and min(tokens) >= END_ID and END_ID not in tokens[:-1]
            ends.add(bool(ended))
        scores = [score for *_, score, _ in found]
        assert scores == sorted(scores, reverse=True)
    assert ends == {True, False}, "the example must have both"


@EVERY_SEARCH
def test_putting_finished_sentences_aside_changes_nothing(search):
    model = HashModel()
    expected = search(model, model.encode(TEXTS), LIMITS)
    width = expected.tokens.shape[2]
    for stage in (1, 3, "one"):
        if stage == "one":
            actual = search(model, model.encode(TEXTS), LIMITS, length=23)
        else:
            actual = with_(search, stage=stage)(model, model.encode(TEXTS), LIMITS)
        assert stage == "one" or actual.tokens.shape[2] == width
        np.testing.assert_array_equal(actual.tokens[:, :, :width], expected.tokens)
        np.testing.assert_array_equal(actual.tokens[:, :, width:], 0)
        np.testing.assert_array_equal(actual.ended, expected.ended)
        log_probabilities = actual.log_probabilities[:, :, :width]
        np.testing.assert_allclose(log_probabilities, expected.log_probabilities, rtol=1e-6)
        for one, other in zip(actual[2:4], expected[2:4], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("search", [Greedy(), Sample(seed=4), Sample(n=3, top_k=4)], ids=str)
def test_what_is_given_token_by_token_is_what_the_search_finds(search):
    model = HashModel(end=0.5)
    stream = search.stream(model)
    for rows, prefixes in ((slice(3, 4), [[5, 6]]), (slice(10, 14), [[0], [7], [0], [0]])):
        encoded, limits = model.encode(TEXTS[rows]), LIMITS[rows]
        expected = search(model, encoded, limits, prefixes).tokens.numpy()
        steps = [step.numpy() for step in stream(encoded, limits, prefixes, range(len(limits)))]
        actual = np.stack(steps, axis=2)
        # A search sorts what it found.
        sort = lambda found: [sorted(map(tuple, of_text)) for of_text in found.tolist()]  # noqa: E731
        assert sort(actual[:, :, : expected.shape[2]]) == sort(expected)
        assert not actual[:, :, expected.shape[2] :].any()


@pytest.mark.parametrize("search", SEARCHES[:4], ids=lambda search: type(search).__name__)
def test_a_sentence_alone_is_as_in_any_batch(search, hypotheses):
    model = HashModel()
    together = hypotheses(search(model, model.encode(TEXTS), LIMITS))
    backwards = hypotheses(search(model, model.encode(TEXTS[::-1]), LIMITS[::-1]))[::-1]
    for row in range(0, len(TEXTS), 7):
        (alone,) = hypotheses(search(model, model.encode(TEXTS[[row]]), LIMITS[[row]]))
        for other in (together[row], backwards[row]):
            assert [found[0] for found in alone] == [found[0] for found in other]
            np.testing.assert_allclose([found[3] for found in alone], [f[3] for f in other], 1e-5)


@EVERY_SEARCH
def test_steps_end_with_the_last_sentence(search):
    model = HashModel(end=20)
    result = search(model, model.encode(TEXTS), np.full(40, 50))
    # A third best of three translations, in a penalty's favour the longer they are, is late.
    assert model.steps <= (15 if getattr(search, "length_penalty", 0) else 2)
    assert result.ended.numpy()[:, 0].all()
    model = HashModel(end=-1e9)
    result = search(model, model.encode(TEXTS), np.full(40, 20))
    assert model.steps == 20 and not result.ended.numpy().any()


@EVERY_SEARCH
def test_no_sentence_and_no_room_give_no_tokens(search, hypotheses):
    model = HashModel()
    assert search(model, model.encode([]), []).tokens.shape == (
        0,
        getattr(search, "n_best", search.width),
        0,
    )
    result = search(model, model.encode([3, 4]), [0, 6])
    assert not result.tokens[0].numpy().any() and not result.ended[0].numpy().any()
    (alone,) = hypotheses(search(model, model.encode([4]), [6]))
    if not isinstance(search, Sample):
        assert [found[0] for found in hypotheses(result)[1]] == [found[0] for found in alone]


def ngrams(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@settings(max_examples=40, deadline=None)
@given(
    search=st.sampled_from(SEARCHES),
    model=st.builds(
        HashModel,
        vocab_size=st.integers(5, 10),
        sharpness=st.floats(0.1, 8),
        end=st.floats(-9, 9),
        seed=st.integers(0, 999),
    ),
    limit=st.integers(1, 14),
    constraints=st.builds(
        Constraints,
        min_length=st.integers(0, 5),
        no_repeat_ngram_size=st.integers(0, 3),
        repetition_penalty=st.sampled_from([1.0, 1.0, 0.7, 1.8]),
        forbidden_tokens=st.sampled_from([(), (4,), (5, 7)]),
    ),
    prefix=st.lists(st.integers(4, 6), max_size=4),
)
def test_constraints_are_honoured_and_scores_stay_the_models(
    search, model, limit, constraints, prefix
):
    prefix = [token for token in prefix if token < model.vocab_size]
    limit = max(limit, len(prefix) + 1)
    prefixes = np.array([prefix + [0] * (5 - len(prefix)), [0] * 5], "int32")
    search = with_(search, constraints=constraints)
    result = search(model, model.encode([17, 44]), [limit, limit], prefixes)
    for row, start in enumerate((prefix, [])):
        for tokens, score in zip(
            result.tokens[row].numpy(), result.score[row].numpy(), strict=True
        ):
            if score < -1e8:
                continue
            tokens = tokens[tokens != 0].tolist()
            assert tokens[: len(start)] == start
            rest = tokens[len(start) :]
            assert not set(rest) & {0, 1, 2, *constraints.forbidden_tokens}
            n = constraints.no_repeat_ngram_size
            new = ngrams(tokens, n)[max(0, len(start) - n + 1) :] if n else []
            assert all(ngrams(tokens, n).count(ngram) == 1 for ngram in new)
            # Only where nothing else is left may it end early.
            if tokens[-1] == END_ID and len(rest) <= constraints.min_length:
                assert (
                    n or len({*range(4, model.vocab_size)} - {*constraints.forbidden_tokens}) == 0
                )
        best = result.tokens[row, 0].numpy()
        best = best[best != 0].tolist()
        expected, _ = model.walk([17, 44][row], best)
        assert float(result.log_probability[row, 0]) == pytest.approx(sum(expected), abs=1e-3)


def test_a_prefix_that_is_the_whole_sentence_is_ended(hypotheses):
    model = HashModel(end=20)
    for search in (Greedy(), Beam()):
        (found,) = hypotheses(search(model, model.encode([3]), [9], [[5, 6, 4]]))
        assert found[0][0] == [5, 6, 4, END_ID] and found[0][4]


def test_a_prefix_as_long_as_the_limit_is_cut(hypotheses):
    model = HashModel()
    for search in (Greedy(), Beam()):
        (found,) = hypotheses(search(model, model.encode([3]), [3], [[5, 6, 4]]))
        assert found[0][0] == [5, 6, 4] and not found[0][4]


def test_repetition_penalty_makes_what_was_said_less_likely(hypotheses):
    def repeats(penalty):
        model = HashModel(end=-1e9, sharpness=1.0)
        search = Greedy(constraints=Constraints(repetition_penalty=penalty))
        found = hypotheses(search(model, model.encode(TEXTS), np.full(40, 12)))
        return sum(12 - len(set(tokens)) for ((tokens, *_),) in found)

    assert repeats(1.5) < repeats(1.0) < repeats(0.7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constraints(min_length=-1), "min_length"),
        (lambda: Constraints(no_repeat_ngram_size=-1), "no_repeat_ngram_size"),
        (lambda: Constraints(repetition_penalty=0.0), "repetition_penalty"),
        (lambda: Beam(size=0), "size"),
        (lambda: Beam(length_penalty=float("nan")), "length_penalty"),
        (lambda: Beam(coverage_penalty=float("inf")), "coverage_penalty"),
        (lambda: Constraints(no_repeat_ngram_size=101), "no_repeat_ngram_size"),
        (lambda: Sample(temperature=float("inf")), "temperature"),
        (lambda: Sample(seed=2**31), "seed"),
        (lambda: Sample(top_k=2**31), "top_k"),
        (lambda: Beam(size=2, n_best=3), "n_best"),
        (lambda: Beam(length_penalty_form="wu"), "length_penalty_form"),
        (lambda: Beam(coverage_penalty=-1.0), "coverage_penalty"),
        (lambda: Sample(n=0), "n"),
        (lambda: Sample(temperature=0.0), "temperature"),
        (lambda: Sample(top_p=0.0), "top_p"),
        (lambda: Sample(top_k=-1), "top_k"),
        (lambda: Sample(min_p=1.5), "min_p"),
    ],
)
def test_an_option_out_of_range_is_named_with_what_was_received(make, message):
    with pytest.raises(ValueError, match=f"`{message}` must.*Received: "):
        make()
