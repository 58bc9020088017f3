import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from kformer.alignment import AttentionFrom
from kformer.errors import InputError
from kformer.graph import TranslationGraph
from kformer.ids import END_ID, PAD_ID, START_ID, UNK_ID
from kformer.models import Transformer
from kformer.saved_graph import SavedGraph
from kformer.search import Beam, Constraints, Greedy, Sample
from kformer.text import SentencePieceTokenizer, Tokenizers, WordTokenizer
from kformer.translator import Translator

WORDS = [chr(ord("a") + i) * 2 for i in range(20)]


@pytest.fixture(scope="module")
def graphs():
    """Graphs by their options: tracing one takes longer than most tests."""
    return {}


@pytest.fixture
def build(random_transformer, graphs):
    """Translators of one random model; those of the same options share a graph.

    Args:
        tokenizer: default words.
        bias: added to the logits of these ids.
        model: options of the Transformer.
        *arguments, **options: of the graph.
        batches: options of the translator.
        fresh: whether to share nothing, because the test changes it.
    """

    def build(*arguments, batches=None, fresh=False, **options):
        key = repr((arguments, sorted(options.items())))
        if fresh or key not in graphs:
            graph = make(*arguments, **options)
            if fresh:
                return Translator(graph, **(batches or {}))
            graphs[key] = graph
        return Translator(graphs[key], **(batches or {}))

    def make(*arguments, tokenizer=None, bias=None, model=None, **options):
        tokenizer = tokenizer or WordTokenizer.learn([" ".join(WORDS)])
        size = tokenizer.vocab_size
        transformer = random_transformer(size, output_bias=True, **(model or {}))
        biases = np.zeros(size)
        for token, value in (bias or {}).items():
            biases[token] = value
        transformer.output_projection.bias.assign(biases)
        tokenizers = Tokenizers(tokenizer, tokenizer)
        return TranslationGraph(transformer, tokenizers, *arguments, **options)

    return build


def texts_of(*lengths, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


@pytest.mark.parametrize(
    "search", [Greedy(), Beam(n_best=4, length_penalty=0.6), Sample(n=2, seed=5)], ids=str
)
def test_a_sentence_alone_translates_as_in_any_batch(search, build):
    """1 to 60 tokens: together, alone, backwards and shuffled."""
    # What does not end takes as many steps as its limit; these are four stages of the search.
    translator = build(search, length_factor=0.75, fresh=True)
    for weight in translator.graph.model.trainable_weights:
        weight.assign(0.6 * weight)  # Logits as large as a trained model's, sums as precise.
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
    assert len({translation.text for translation in together}) > 50


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
    assert build(batches=options).translate(texts) == expected


def test_batches_keep_to_both_limits(build, monkeypatch):
    batches = dict(max_batch_tokens=64, max_batch_sentences=3)
    translator = build(batches=batches)
    batches, complete = [], translator.graph.complete
    monkeypatch.setattr(
        translator.graph,
        "complete",
        lambda text, prefix: batches.append(text.numpy().tolist()) or complete(text, prefix),
    )
    translator.translate(texts_of(*[3] * 7, *[20] * 4, 100))
    lengths = [[len(text.split()) for text in batch] for batch in batches]
    assert lengths == [[3] * 3, [3] * 3, [3, 20, 20], [20, 20], [100]]


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
    ],
)  # fmt: skip
def test_wrong_arguments_are_named_with_what_was_received(call, message, build):
    with pytest.raises(InputError, match=message):
        call(build())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(max_length=0), "max_length must be at least 1. Received: 0"),
        (dict(max_source_tokens=4), "max_source_tokens must be at least 5. Received: 4"),
        (dict(length_factor=float("nan")), "length_factor must not be negative, nor huge"),
        (dict(length_margin=2**31), "length_margin must not be negative, nor huge"),
        (dict(length_margin=-1), "length_margin must not be negative, nor huge. Received: -1"),
        (dict(batches=dict(max_batch_tokens=0)), "max_batch_tokens must be at least 1"),
        (dict(batches=dict(max_batch_sentences=0)), "max_batch_sentences must be at least 1"),
        (
            dict(attention=AttentionFrom(2), model=dict(num_decoder_layers=2)),
            "2 decoder layers.*layer 2",
        ),
        (dict(attention=AttentionFrom(0, (2,))), "2 heads.*head 2"),
    ],
)
def test_options_out_of_range_are_refused(options, message, build):
    with pytest.raises(InputError, match=message):
        build(**options)


@pytest.fixture
def recurrent_graph(random_recurrent):
    """Makes graphs of a random recurrent model."""

    def make(*arguments, model, **options):
        tokenizer = WordTokenizer.learn([" ".join(WORDS)])
        recurrent = random_recurrent(tokenizer.vocab_size, **model)
        return TranslationGraph(recurrent, Tokenizers(tokenizer, tokenizer), *arguments, **options)

    return make


@pytest.mark.parametrize(
    "options",
    [
        dict(search=Beam(size=2, coverage_penalty=0.1)),
        dict(attention=AttentionFrom(0)),
        dict(attention=AttentionFrom(heads=(0,))),
    ],
    ids=str,
)
def test_what_needs_attention_is_refused_where_there_is_none(options, recurrent_graph):
    named = r"^(coverage_penalty|alignments from a layer or heads): the model has no attention$"
    with pytest.raises(InputError, match=named):
        recurrent_graph(model=dict(attention="none"), **options)


def test_without_attention_all_but_alignments_works(recurrent_graph):
    graph = recurrent_graph(model=dict(attention="none"))
    translator, texts = Translator(graph), texts_of(3, 1, 7)
    for translation in translator.translate_nbest(texts, ["aa", "", "bb cc"]):
        best = translation.hypotheses[0]
        assert best.alignment is None and best.score == pytest.approx(best.log_probability)
    (scored,) = translator.score(["aa bb"], ["cc"])
    assert scored.tokens[-1] == "</s>" and scored.log_probability < 0
    for refused in (
        lambda: translator.align(["aa"], ["bb"]),
        lambda: translator.translate_nbest(["aa"], with_alignments=True),
    ):
        with pytest.raises(InputError, match="^the model has no attention$"):
            refused()
    with pytest.raises(InputError, match="^the model has no attention$"):
        graph.attention(["aa"], ["bb"])


def test_alignments_of_a_recurrent_model_are_its_attention(recurrent_graph):
    graph = recurrent_graph(model=dict(attention="additive", bidirectional=True))
    (alignment,) = Translator(graph).align(["aa bb cc"], ["dd ee"])
    tokenizer = graph.tokenizers.source
    source, target = (
        np.array([[*tokenizer.tokenize([text]).to_list()[0], END_ID]])
        for text in ("aa bb cc", "dd ee")
    )
    shifted = np.array([[START_ID, *target[0, :-1]]])
    _, (weights,) = graph.model.call_with_attention(source, shifted)
    np.testing.assert_allclose(alignment.weights, weights[0, 0], atol=1e-5)


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


@pytest.mark.parametrize(
    ("kind", "search"),
    [("words", Greedy()), ("words", Beam()), ("words", Sample(n=3)), ("subwords", Greedy())],
    ids=str,
)
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
    with pytest.raises(InputError, match=r"^pair 2: 12 tokens .* reads 11"):
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
    with pytest.raises(InputError, match="^prefix 2: 5 tokens, .* room for 4"):
        build(max_length=4).translate(["aa", "aa\nbb"], ["", "aa bb cc dd ee"])


def test_a_prefix_is_for_the_first_part_of_a_text_in_parts(build):
    (text,) = build().translate(["aa bb\ncc"], ["dd ee"])
    first, second = text.split("\n")
    assert first.startswith("dd ee") and second == build().translate(["cc"])[0]


def test_alignments_are_those_of_the_layer_and_heads_asked_for(build):
    translator = build(attention=AttentionFrom(0, (1,)), model=dict(num_decoder_layers=2))
    texts, targets = texts_of(2, 7), ["cc dd ee", "ff"]
    for text, target, alignment in zip(
        texts, targets, translator.align(texts, targets), strict=True
    ):
        assert alignment.source_tokens == [*text.split(), "</s>"]
        assert alignment.target_tokens == [*target.split(), "</s>"]
        tokenizers, model = translator.graph.tokenizers, translator.graph.model
        source = tokenizers.source.tokenize([text]).to_tensor()
        source = np.pad(source, [[0, 0], [0, 1]], constant_values=END_ID)
        shifted = np.pad(
            tokenizers.target.tokenize([target]).to_tensor(), [[0, 0], [1, 0]],
            constant_values=START_ID,
        )  # fmt: skip
        _, layers = model.call_with_attention(source, shifted)
        expected = layers[0][0, 1]
        np.testing.assert_allclose(alignment.weights, expected, atol=1e-5)
        np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)
        expected = alignment.weights[:-1, :-1].argmax(axis=1)
        assert alignment.links == [(source, target) for target, source in enumerate(expected)]


def test_attention_maps_are_those_of_every_layer_and_head(build):
    translator = build(attention=AttentionFrom(0, (1,)), model=dict(num_decoder_layers=2))
    texts, targets = texts_of(2, 7), ["cc dd ee", "ff"]
    tokenizers, model = translator.graph.tokenizers, translator.graph.model
    alignments = translator.align(texts, targets)
    for text, target, maps, alignment in zip(
        texts, targets, translator.attention_maps(texts, targets), alignments, strict=True
    ):
        assert maps.source_tokens == [*text.split(), "</s>"]
        assert maps.target_tokens == [*target.split(), "</s>"]
        source = [*tokenizers.source.tokenize([text]).to_list()[0], END_ID]
        shifted = [START_ID, *tokenizers.target.tokenize([target]).to_list()[0]]
        _, layers = model.call_with_attention(tf.constant([source]), tf.constant([shifted]))
        assert maps.weights.shape == (2, 2, len(shifted), len(source))
        np.testing.assert_allclose(maps.weights, [layer[0] for layer in layers], atol=1e-5)
        np.testing.assert_allclose(maps.weights[0, 1], alignment.weights, atol=1e-6)


def test_where_there_are_no_attention_maps_one_is_told(build, monkeypatch):
    translator = build()
    monkeypatch.setattr(Transformer, "attention_shape", (0, 0))
    with pytest.raises(InputError, match="no attention"):
        translator.attention_maps(["aa"], ["bb"])
    with pytest.raises(InputError, match="no attention"):
        translator.graph.attention_maps(tf.constant(["aa"]), tf.constant(["bb"]))
    export = Translator(SavedGraph.__new__(SavedGraph))
    with pytest.raises(InputError, match="give a run folder"):
        export.attention_maps(["aa"], ["bb"])


def test_hypotheses_come_with_their_alignments_if_asked_for(build):
    translator = build(Beam(n_best=2))
    texts = [*texts_of(2, 7), ""]
    found = translator.translate_nbest(texts, with_alignments=True)
    for text, translation in zip(texts[:2], found, strict=False):
        for hypothesis in translation.hypotheses:
            (expected,) = translator.align([text], [hypothesis.text])
            assert hypothesis.alignment.links == expected.links
            np.testing.assert_allclose(hypothesis.alignment.weights, expected.weights, atol=1e-5)
    assert found[2].hypotheses[0].alignment is None
    assert all(h.alignment is None for t in translator.translate_nbest(texts) for h in t.hypotheses)


def test_the_alignment_of_a_text_in_parts_counts_words_through(build):
    translator = build()
    one, other = translator.translate_nbest(texts_of(3, 4), with_alignments=True)
    (whole,) = translator.translate_nbest(["\n".join(texts_of(3, 4))], with_alignments=True)
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
    first, second = build(fresh=True), build()
    expected = second.translate(text)
    assert first.translate(text) == expected
    bias = first.graph.model.output_projection.bias
    before = bias.numpy()
    bias.assign(np.where(np.arange(len(before)) == 7, 1e9, before))
    assert first.translate(text) != expected and second.translate(text) == expected
    bias.assign(before)
    assert first.translate(text) == expected


def test_all_shapes_share_one_trace(build):
    translator = build()
    for lengths in ((1,), (3, 3), (50, 2, 9), (120,) * 5):
        translator.translate(texts_of(*lengths))
    assert translator.graph.complete.experimental_get_tracing_count() == 1


def test_results_are_plain_data(build):
    (translation,) = build().translate_nbest(texts_of(3))
    fields = dataclasses.asdict(translation)["hypotheses"][0]
    assert {type(value) for value in fields.values()} <= {str, list, float, bool, type(None)}


def test_where_there_is_room_for_no_token_there_is_an_empty_translation(build):
    for search in (Greedy(), Beam()):
        (translation,) = build(search, length_factor=0, length_margin=0).translate_nbest(["aa"])
        assert translation.text == "" and not translation.hypotheses[0].ended


def test_a_prefix_waits_for_the_first_line_with_text(build):
    (text,) = build().translate(["\n \naa bb"], ["dd ee"])
    assert text.startswith("\n\ndd ee")


def test_a_translation_that_fills_all_learned_positions_has_no_alignment(build):
    translator = build(model=LEARNED, bias={END_ID: -1e9})
    (translation,) = translator.translate_nbest(texts_of(3), with_alignments=True)
    assert len(translation.hypotheses[0].tokens) == 12
    assert translation.hypotheses[0].alignment is None


def test_a_pair_too_long_to_score_is_named(build):
    with pytest.raises(InputError, match="^pair 2: 5000 tokens on a side.* reads 4096"):
        build().score(["aa", "bb"], ["aa", " ".join(texts_of(5000))])
