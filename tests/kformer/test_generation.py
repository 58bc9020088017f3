import numpy as np
import pytest

from kformer.errors import InputError
from kformer.generation import GenerationGraph, Generator, _sure
from kformer.ids import END_ID, START_ID
from kformer.run_folder import RunFolder
from kformer.search import Beam, Greedy, Sample
from kformer.subwords.learn import byte_model
from kformer.text import SentencePieceTokenizer, Tokenizers, WordTokenizer
from kformer.translator import TextTooLongError, Translator
from tests.conftest import random_language_model

WORDS = "one two three four five six seven eight nine ten".split()
PROMPTS = ["one two", "", "five", "three four five six"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, save_lines_run):
    tokenizer = WordTokenizer.learn([" ".join(WORDS)])
    return save_lines_run(tmp_path_factory.mktemp("generation") / "run", tokenizer)


@pytest.fixture(scope="module")
def greedy(run):
    return Generator.from_run(run.path, Greedy(), max_length=12)


@pytest.fixture(scope="module")
def sampling(run):
    return Generator.from_run(run.path, Sample(seed=3), max_length=12)


def test_greedy_text_is_that_of_a_loop_over_full_passes(run, greedy):
    model, tokenizers = run.load()
    pieces = tokenizers.target.pieces()
    for prompt, (found,) in zip(PROMPTS, greedy.generate(PROMPTS), strict=True):
        ids = tokenizers.target.tokenize([prompt])[0].numpy().tolist()
        likely = []
        for _ in range(12):
            logits = model((np.array([[END_ID]]), np.array([[START_ID, *ids]])))[0].numpy()
            logits = logits.astype("float64")
            likely = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            allowed = likely[-1].copy()
            allowed[:END_ID] = -np.inf
            ids.append(int(allowed.argmax()))
            if ids[-1] == END_ID:
                break
        assert found.tokens == [pieces[i] for i in ids]
        assert found.text == tokenizers.target.detokenize([ids])[0].numpy().decode()
        np.testing.assert_allclose(
            found.token_log_probabilities, likely[np.arange(len(ids)), ids], atol=1e-4
        )
        assert found.text.startswith(prompt) and found.ended == (ids[-1] == END_ID)


def test_a_prompt_alone_is_continued_as_among_others(greedy):
    together = greedy.generate(PROMPTS)
    for prompt, expected in zip(PROMPTS, together, strict=True):
        (found,) = greedy.generate([prompt])
        assert [h.text for h in found] == [h.text for h in expected]
    in_small_batches = Generator(greedy.graph, max_batch_tokens=1).generate(PROMPTS)
    assert [h[0].text for h in in_small_batches] == [h[0].text for h in together]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_what_is_streamed_is_what_is_generated(prompt, greedy, sampling):
    for generator in (greedy, sampling):
        ((expected, *_),) = Generator(generator.graph).generate([prompt])
        parts = list(Generator(generator.graph).stream(prompt))
        assert "".join(parts) == expected.text
        assert len(parts) > 2 or len(expected.tokens) < 4, "it must not come all at once"


def test_equal_prompts_draw_different_texts_in_every_batch_and_call(sampling):
    prompts = ["one"] * 12

    def texts(found):
        return [hypotheses[0].text for hypotheses in found]

    together = texts(Generator(sampling.graph).generate(prompts))
    assert len(set(together)) > 3
    one_by_one = Generator(sampling.graph, max_batch_tokens=1)
    assert texts(one_by_one.generate(prompts)) == together
    calls = Generator(sampling.graph)
    assert texts(calls.generate(prompts[:5])) + texts(calls.generate(prompts[5:])) == together


def test_scores_are_those_of_the_search_and_make_the_perplexity(greedy, sampling):
    for found in sampling.generate(["one", "two"]):
        if not found[0].ended:
            continue
        (score,) = sampling.score([found[0].text])
        assert score.log_probability == pytest.approx(found[0].log_probability, abs=1e-4)
    (empty,) = greedy.score([""])
    assert empty.tokens == ["</s>"] and empty.log_probability < 0


def test_a_beam_gives_several_texts_best_first(run):
    generator = Generator.from_run(run.path, Beam(size=3, n_best=3), max_length=5)
    (found,) = generator.generate(["one"])
    assert len({h.text for h in found}) == 3
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    with pytest.raises(InputError, match="only one text"):
        next(generator.stream("one"))


def test_learned_positions_bound_prompt_and_text(tmp_path, save_lines_run):
    tokenizer = WordTokenizer.learn([" ".join(WORDS)])
    run = save_lines_run(tmp_path / "run", tokenizer, positions="learned", max_length=7)
    generator = Generator.from_run(run.path, Sample(n=20))
    # The end of the empty source and the start take two of the seven, which six tokens follow.
    assert max(len(h.tokens) for h in generator.generate(["one"])[0]) == 6
    assert generator.generate([" ".join(["one"] * 6)])[0][0].text == " ".join(["one"] * 6)
    with pytest.raises(TextTooLongError, match="prompt 2: 7 tokens, but the model has room for 6"):
        generator.generate(["one", " ".join(["one"] * 7)])
    longest = " ".join(["one"] * 5)
    assert len(generator.score([longest])[0].tokens) == 6
    with pytest.raises(TextTooLongError):
        generator.score([f"{longest} one"])


def test_models_of_lines_and_of_pairs_are_told_apart(tmp_path, run, save_run):
    pairs = save_run(tmp_path / "pairs", WordTokenizer.learn([" ".join(WORDS)]))
    with pytest.raises(InputError, match="was trained on pairs.*kformer.translate"):
        Generator.from_run(pairs.path)
    with pytest.raises(InputError, match="was trained on lines.*kformer.generate"):
        Translator.from_run(run.path)
    assert RunFolder(run.path).of_lines and not RunFolder(pairs.path).of_lines


def test_what_may_still_change_is_held_back():
    assert _sure("Haus") == "Hau"
    assert _sure("e\u0301") == _sure("x") == _sure("") == ""
    assert _sure("ab\ufffd\ufffd") == "a"


def test_characters_of_several_bytes_are_streamed_whole(run):
    """A vocabulary of bytes, and a model that writes what it is told to."""
    tokenizer = SentencePieceTokenizer(byte_model())
    prompt = "é日本 e\u0301ß 😀 x"
    ids = tokenizer.tokenize([prompt])[0].numpy().tolist()
    model = random_language_model(tokenizer.vocab_size)
    graph = GenerationGraph(model, Tokenizers(tokenizer, tokenizer), Greedy(), max_length=1)
    parts = list(Generator(graph).stream(prompt))
    whole = "".join(parts)
    assert whole.startswith("é日本 éß 😀 x")
    assert all("\ufffd" not in part for part in parts[:-1]) and len(parts) > 5 and len(ids) > 15
