import dataclasses

import numpy as np
import pytest

from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.search import Beam, Constraints, Greedy, Sample
from kformer.text import SentencePieceTokenizer, Tokenizers, WordTokenizer
from kformer.translator import AttentionFrom, Translator

WORDS = [chr(ord("a") + i) * 2 for i in range(20)]


@pytest.fixture
def build(random_transformer):
    """Translators of one random model.

    Args:
        tokenizer: default words.
        bias: added to the logits of these ids.
        model: options of the Transformer.
        *arguments, **options: of the translator.
    """

    def build(*arguments, tokenizer=None, bias=None, model=None, **options):
        tokenizer = tokenizer or WordTokenizer.learn([" ".join(WORDS)])
        size = tokenizer.vocab_size
        transformer = random_transformer(size, output_bias=True, **(model or {}))
        biases = np.zeros(size)
        for token, value in (bias or {}).items():
            biases[token] = value
        transformer.output_projection.bias.assign(biases)
        return Translator(transformer, Tokenizers(tokenizer, tokenizer), *arguments, **options)

    return build


def texts_of(*lengths, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


@pytest.mark.parametrize("search", [Greedy(), Beam(n_best=4, length_penalty=0.6)], ids=str)
def test_a_sentence_alone_translates_as_in_any_batch(search, build):
    """1 to 60 tokens: together, alone, backwards and shuffled."""
    translator = build(search)
    texts = texts_of(*range(1, 61))
    together = translator.translate_nbest(texts)
    backwards = translator.translate_nbest(texts[::-1])[::-1]
    shuffled = np.random.default_rng(3).permutation(60)
    of_shuffled = translator.translate_nbest([texts[i] for i in shuffled])
    for number in range(0, 60, 7):
        (alone,) = translator.translate_nbest([texts[number]])
        others = together[number], backwards[number], of_shuffled[list(shuffled).index(number)]
        for other in others:
            assert [h.text for h in other.hypotheses] == [h.text for h in alone.hypotheses]
            for one, same in zip(other.hypotheses, alone.hypotheses, strict=True):
                assert one.score == pytest.approx(same.score, abs=1e-4)
    assert len({translation.text for translation in together}) == 60


@pytest.mark.parametrize(
    "options",
    [
        dict(max_batch_tokens=1),
        dict(max_batch_tokens=20),
        dict(max_batch_tokens=100),
        dict(max_batch_sentences=2),
    ],
)
def test_the_size_of_batches_changes_neither_order_nor_translations(options, build):
    texts = texts_of(5, 1, 12, 3, 3, 8, 2)
    expected = build().translate(texts)
    assert len(set(expected)) == len(texts)
    assert build(**options).translate(texts) == expected


def test_batches_keep_to_both_limits(build, monkeypatch):
    translator = build(max_batch_tokens=64, max_batch_sentences=3)
    sizes, search = [], translator._search_ids
    monkeypatch.setattr(
        translator, "_search_ids", lambda ids, *rest: sizes.append(ids.shape) or search(ids, *rest)
    )
    translator.translate(texts_of(*[3] * 7, *[20] * 4, 100))
    assert sizes == [(3, 8), (3, 8), (2, 24), (2, 24), (1, 24), (1, 104)]


def test_blank_texts_give_empty_strings_in_their_places(build):
    translator = build()
    (text,) = texts_of(4)
    (expected,) = translator.translate([text])
    blanks = ["", " ", "\t \u00a0", "\u2028"]
    texts = ["", text, *blanks[1:], text]
    assert translator.translate(texts) == ["", expected, "", "", "", expected]
    (blank,) = build(Beam(n_best=3)).translate_nbest([""])
    assert blank.text == "" and len(blank.hypotheses) == 1 and blank.hypotheses[0].ended
    assert translator.translate(blanks) == [""] * 4
    assert translator.translate([]) == []
    assert expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.translate("aa bb"), "texts must be a list of strings"),
        (lambda t: t.translate(["aa", 5]), "texts must be strings. Received: 5 as number 2"),
        (lambda t: t.translate([None]), "Received: None as number 1"),
        (lambda t: t.translate(["aa"], prefixes="bb"), "prefixes must be a list"),
        (lambda t: t.translate(["aa"], prefixes=["bb", "cc"]), "2 prefixes for 1 texts"),
        (lambda t: t.score(["aa"], []), "1 sources for 0 targets"),
        (lambda t: t.translate_nbest(["a"], attention=AttentionFrom(2)), "2 decoder.*layer 2"),
        (lambda t: t.translate_nbest(["a"], attention=AttentionFrom(0, (2,))), "2 heads.*head 2"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named_with_what_was_received(call, message, build):
    with pytest.raises(InputError, match=message):
        call(build())


@pytest.mark.parametrize("name", ["max_length", "max_source_tokens", "max_batch_tokens"])
def test_limits_below_one_are_refused(name, build):
    with pytest.raises(InputError, match=f"{name} must be at least 1. Received: 0"):
        build(**{name: 0})


def test_a_lone_surrogate_is_translated_as_its_bytes_are(build):
    translator = build()
    assert translator.translate(["aa \ud800 bb"]) == translator.translate(
        ["aa \ufffd\ufffd\ufffd bb"]
    )


# Limits


def test_a_translation_that_never_ends_is_cut_by_the_length_of_its_own_source(build):
    texts = texts_of(1, 10, 3)
    translator = build(bias={END_ID: -1e9}, length_factor=1.5, length_margin=4)
    # The end token counts, in the source and in the limit.
    expected = [int(1.5 * (length + 1)) + 4 for length in (1, 10, 3)]
    together = translator.translate_nbest(texts)
    assert [len(t.text.split()) for t in together] == expected
    assert not any(t.hypotheses[0].ended for t in together)
    assert [len(translator.translate([text])[0].split()) for text in texts] == expected
    capped = build(bias={END_ID: -1e9}, max_length=9).translate(texts)
    assert [len(text.split()) for text in capped] == [9, 9, 9]


@pytest.mark.parametrize("kind", ["words", "subwords"])
@pytest.mark.parametrize("search", [Greedy(), Beam(), Sample(n=3)], ids=str)
def test_no_reserved_token_shows_in_a_translation(kind, search, build):
    texts = texts_of(1, 6, 3, 12)
    tokenizer = (
        SentencePieceTokenizer.learn(texts_of(*[8] * 50), 300) if kind == "subwords" else None
    )
    bias = {PAD_ID: 50.0, START_ID: 50.0, UNK_ID: 50.0, END_ID: -3.0}
    translator = build(search, tokenizer=tokenizer, bias=bias)
    for translation in translator.translate(texts):
        assert translation
        assert not any(name in translation for name in ("<pad>", "<s>", "</s>", "<unk>", "⁇"))
        assert translation == " ".join(translation.splitlines()).strip()


def test_what_follows_the_end_is_not_shown(build):
    assert build(bias={END_ID: 1e9}).translate(texts_of(3, 5)) == ["", ""]


LEARNED = dict(positions="learned", max_length=12)


def test_learned_positions_bound_parts_and_translations(build):
    translator = build(model=LEARNED, bias={END_ID: -1e9})
    just_fits, too_long = translator.translate_nbest(texts_of(11, 12))
    assert (just_fits.parts, too_long.parts) == (1, 2)
    assert len(just_fits.text.split()) == 12 and len(too_long.text.split()) == 24


def test_a_pair_to_score_that_is_longer_than_the_learned_positions_is_named(build):
    with pytest.raises(InputError, match=r"^pair 2: 12 tokens .* 12 learned positions"):
        build(model=LEARNED).score(texts_of(3, 4), texts_of(11, 12))


# Lines and long texts


def test_lines_of_a_text_are_kept(build):
    translator = build()
    one, other = texts_of(3, 5)
    translations = dict(zip((one, other), translator.translate([one, other]), strict=True))
    (translation,) = translator.translate_nbest([f"{one}\n\n  \n{other}\r\n{one}\n"])
    expected = [translations[one], "", "", translations[other], translations[one], ""]
    assert translation.text == "\n".join(expected)
    assert translation.parts == 6


def test_a_long_line_is_translated_in_parts_and_nothing_is_lost(build):
    translator = build(max_source_tokens=10)
    sentences = [f"{text}." for text in texts_of(4, 3, 9, 2)]
    # 5 + 4 fit together, with 10 a fourth does not.
    groups = [" ".join(sentences[:2]), sentences[2], sentences[3]]
    (translation,) = translator.translate_nbest([" ".join(sentences)])
    assert translation.parts == 3
    assert translation.text == " ".join(translator.translate(groups))
    parts = [part.hypotheses[0] for part in translator.translate_nbest(groups)]
    whole = translation.hypotheses[0]
    assert whole.log_probability == pytest.approx(sum(h.log_probability for h in parts), abs=1e-4)
    assert whole.tokens == [token for h in parts for token in h.tokens]


def test_n_best_of_a_text_in_parts_are_made_of_each_parts_n_best(build):
    translator = build(Beam(size=3, n_best=3))
    texts = texts_of(3, 4)
    (whole,) = translator.translate_nbest(["\n".join(texts)])
    one, other = translator.translate_nbest(texts)
    assert [h.text for h in whole.hypotheses] == [
        f"{a.text}\n{b.text}" for a, b in zip(one.hypotheses, other.hypotheses, strict=True)
    ]


def test_a_line_of_fifty_thousand_words_is_translated(build):
    text = " ".join(texts_of(50_000))
    translator = build(length_factor=0.0, length_margin=2, max_length=2)
    (translation,) = translator.translate_nbest([text])
    assert translation.parts == -(-50_000 // 128)


# Scores, prefixes, alignments


@pytest.mark.parametrize("search", [Beam(size=4, n_best=4), Sample(n=4)], ids=str)
def test_scores_are_those_of_forced_decoding(search, build):
    """Words are one token each, so a text is its tokens."""
    translator = build(search, bias={END_ID: 4.0})
    texts = texts_of(3, 6, 9)
    checked = 0
    for text, translation in zip(texts, translator.translate_nbest(texts), strict=True):
        ended = [h for h in translation.hypotheses if h.ended]
        forced = translator.score([text] * len(ended), [h.text for h in ended])
        for hypothesis, score in zip(ended, forced, strict=True):
            assert score.tokens == hypothesis.tokens and score.tokens[-1] == "</s>"
            assert score.log_probability == pytest.approx(hypothesis.log_probability, abs=1e-4)
            np.testing.assert_allclose(
                score.token_log_probabilities, hypothesis.token_log_probabilities, atol=1e-4
            )
            n = len(score.tokens)
            assert score.perplexity == pytest.approx(np.exp(-score.log_probability / n))
            checked += 1
        assert len({tuple(h.tokens) for h in translation.hypotheses}) == len(translation.hypotheses)
    assert checked >= 4


def test_scores_do_not_depend_on_what_is_scored_beside(build):
    translator = build()
    sources, targets = texts_of(1, 20, 5, 60), [*texts_of(7, 3, 30), ""]
    together = translator.score(sources, targets)
    for source, target, expected in zip(sources, targets, together, strict=True):
        (alone,) = translator.score([source], [target])
        assert alone.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
    assert together[3].tokens == ["</s>"]


@pytest.mark.parametrize("search", [Greedy(), Beam(n_best=2), Sample(n=2)], ids=str)
def test_translations_begin_with_their_prefix(search, build):
    translator = build(search)
    texts = texts_of(4, 2, 30, 6)
    prefixes = ["cc dd", "", "ee", "aa bb cc dd ee ff gg hh ii jj kk ll mm nn oo pp"]
    for prefix, translation in zip(
        prefixes, translator.translate_nbest(texts, prefixes), strict=True
    ):
        for hypothesis in translation.hypotheses:
            assert hypothesis.text.startswith(prefix)
    (free,) = translator.translate(texts[1:2])
    assert isinstance(search, Sample) or translator.translate(texts, prefixes)[1] == free
    with pytest.raises(InputError, match="^prefix 2: 5 tokens, .* at most 4"):
        build(max_length=4).translate(["aa", "aa\nbb"], ["", "aa bb cc dd ee"])


def test_a_prefix_is_for_the_first_part_of_a_text_in_parts(build):
    (text,) = build().translate(["aa bb\ncc"], ["dd ee"])
    first, second = text.split("\n")
    assert first.startswith("dd ee") and second == build().translate(["cc"])[0]


def test_alignments_belong_to_the_tokens_they_come_with(build):
    translator = build(Beam(n_best=2))
    texts = texts_of(2, 7)
    translations = translator.translate_nbest(texts, attention=AttentionFrom(0, (1,)))
    for text, translation in zip(texts, translations, strict=True):
        for hypothesis in translation.hypotheses:
            alignment = hypothesis.alignment
            assert alignment.source_tokens == [*text.split(), "</s>"]
            assert alignment.target_tokens == hypothesis.tokens
            assert alignment.weights.shape == (len(hypothesis.tokens), len(text.split()) + 1)
            np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)
            words = len(hypothesis.text.split())
            assert [target for _, target in alignment.links] == list(range(words))
            expected = alignment.weights[:words, :-1].argmax(axis=1)
            assert [source for source, _ in alignment.links] == expected.tolist()
    (alone,) = translator.translate_nbest(texts[:1], attention=AttentionFrom(0, (1,)))
    np.testing.assert_allclose(
        alone.hypotheses[0].alignment.weights,
        translations[0].hypotheses[0].alignment.weights, atol=1e-5,
    )  # fmt: skip
    assert all(h.alignment is None for t in translator.translate_nbest(texts) for h in t.hypotheses)


def test_the_alignment_of_a_text_in_parts_counts_words_through(build):
    translator = build()
    one, other = translator.translate_nbest(texts_of(3, 4), attention=AttentionFrom())
    (whole,) = translator.translate_nbest(["\n".join(texts_of(3, 4))], attention=AttentionFrom())
    first, second = one.hypotheses[0].alignment, other.hypotheses[0].alignment
    words = len(one.text.split())
    assert whole.hypotheses[0].alignment.links == first.links + [
        (source + 3, target + words) for source, target in second.links
    ]


def test_constraints_reach_the_search(build):
    search = Greedy(constraints=Constraints(min_length=12, no_repeat_ngram_size=1))
    (text,) = build(search, bias={END_ID: 9.0}).translate(texts_of(6))
    assert len(text.split()) >= 12 and len(set(text.split())) == len(text.split())


def test_two_translators_in_one_process_do_not_mix(build):
    text = texts_of(5)
    first, second = build(), build(bias={7: 1e9})
    assert first.translate(text) == build().translate(text)
    assert second.translate(text) != first.translate(text)
    first.model.output_projection.bias.assign(second.model.output_projection.bias)
    assert second.translate(text) == first.translate(text)


def test_all_shapes_share_one_trace(build):
    translator = build()
    for lengths in ((1,), (3, 3), (50, 2, 9), (120,) * 5):
        translator.translate(texts_of(*lengths))
    assert translator._search_ids.experimental_get_tracing_count() == 1


def test_results_are_plain_data(build):
    (translation,) = build().translate_nbest(texts_of(3))
    fields = dataclasses.asdict(translation)["hypotheses"][0]
    assert {type(value) for value in fields.values()} <= {str, list, float, bool, type(None)}
