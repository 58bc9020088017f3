import numpy as np
import pytest

from kformer.errors import InputError
from kformer.models import Transformer
from kformer.text import SentencePieceTokenizer, Tokenizers, WordTokenizer
from kformer.translator import Translator

WORDS = [chr(ord("a") + i) * 2 for i in range(20)]
PAD, UNK, START, END = range(4)


def build_translator(tokenizer=None, bias=None, model=None, **options):
    """One whose float32 model has large random weights: other sources, other translations.

    Args:
        tokenizer: default words.
        bias: added to the logits of these ids.
        model: options of the Transformer.
        **options: of the translator.
    """
    tokenizer = tokenizer or WordTokenizer.learn([" ".join(WORDS)])
    sizes = dict(
        source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size, d_model=16,
        num_heads=2, d_ff=24, num_encoder_layers=2, num_decoder_layers=2, norm="pre", tie="none",
        output_bias=True, dropout=0.0,
    )  # fmt: skip
    transformer = Transformer(**{**sizes, **(model or {})}, dtype="float32")
    random = np.random.default_rng(1)
    for weight in transformer.trainable_weights:
        if len(weight.shape) == 2:
            weight.assign(random.normal(size=weight.shape))
    biases = np.zeros(tokenizer.vocab_size)
    for token, value in {UNK: -1e9, **(bias or {})}.items():
        biases[token] = value
    transformer.output_projection.bias.assign(biases)
    return Translator(transformer, Tokenizers(tokenizer, tokenizer), **options)


def texts_of(*lengths, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


def test_a_sentence_alone_translates_as_in_any_batch():
    texts = texts_of(1, 9, 3, 30, 2, 7, 7, 15, 1, 4)
    translator = build_translator()
    alone = [translator.translate([text])[0] for text in texts]
    assert len(set(alone)) == len(texts)
    assert translator.translate(texts) == alone
    assert translator.translate(texts[::-1]) == alone[::-1]


@pytest.mark.parametrize("max_batch_tokens", [1, 20, 100])
def test_the_size_of_batches_changes_neither_order_nor_translations(max_batch_tokens):
    texts = texts_of(5, 1, 12, 3, 3, 8, 2)
    expected = build_translator().translate(texts)
    assert len(set(expected)) == len(texts)
    assert build_translator(max_batch_tokens=max_batch_tokens).translate(texts) == expected


def test_blank_texts_give_empty_strings_in_their_places():
    translator = build_translator()
    text = texts_of(4)[0]
    (expected,) = translator.translate([text])
    blanks = ["", " ", "\t \u00a0", "\u2028"]
    assert translator.translate(["", text, *blanks[1:], text]) == [
        "",
        expected,
        "",
        "",
        "",
        expected,
    ]
    assert translator.translate(blanks) == [""] * 4
    assert expected


def test_no_texts_give_no_translations():
    assert build_translator().translate([]) == []


def test_a_string_that_is_not_in_a_list_is_refused():
    with pytest.raises(InputError, match="list"):
        build_translator().translate("aa bb")


def test_a_translation_that_never_ends_is_cut_by_the_length_of_its_own_source():
    texts = texts_of(1, 10, 3)
    translator = build_translator(bias={END: -1e9}, length_factor=1.5, length_margin=4)
    # The end token counts, in the source and in the limit.
    expected = [int(1.5 * (length + 1)) + 4 for length in (1, 10, 3)]
    assert [len(text.split()) for text in translator.translate(texts)] == expected
    alone = [len(translator.translate([text])[0].split()) for text in texts]
    assert alone == expected


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_no_padding_start_or_end_shows_in_a_translation(kind):
    texts = texts_of(1, 6, 3, 12)
    tokenizer = (
        SentencePieceTokenizer.learn(texts_of(*[8] * 50), 300) if kind == "subwords" else None
    )
    translator = build_translator(tokenizer, bias={PAD: 50.0, START: 50.0, END: -3.0})
    translations = translator.translate(texts)
    assert all(translations)
    for translation in translations:
        assert not any(name in translation for name in ("<pad>", "<s>", "</s>", "<unk>"))
        assert translation == " ".join(translation.splitlines()).strip()


def test_what_follows_the_end_is_not_shown():
    translator = build_translator(bias={END: 1e9})
    assert translator.translate(texts_of(3, 5)) == ["", ""]


LEARNED = dict(positions="learned", max_length=12)


def test_a_text_longer_than_the_learned_positions_is_refused_by_its_number():
    translator = build_translator(model=LEARNED)
    with pytest.raises(InputError, match=r"^text 2: 12 tokens, but .* 12 learned positions"):
        translator.translate(texts_of(3, 12, 4))


def test_a_text_that_just_fits_the_learned_positions_is_translated_within_them():
    translator = build_translator(model=LEARNED, bias={END: -1e9})
    assert len(translator.translate(texts_of(11))[0].split()) == 12


def test_sinusoidal_positions_have_no_end():
    long = texts_of(150)
    assert build_translator(length_factor=0.1).translate(long)[0]


def test_two_translators_in_one_process_do_not_mix():
    text = texts_of(5)
    first, second = build_translator(), build_translator(bias={7: 1e9})
    assert first.translate(text) == build_translator().translate(text)
    assert second.translate(text) != first.translate(text)
    first.model.output_projection.bias.assign(second.model.output_projection.bias)
    assert second.translate(text) == first.translate(text)
