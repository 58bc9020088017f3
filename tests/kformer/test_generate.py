import io
import json
import sys
from types import SimpleNamespace

import pytest

import kformer.generation
from kformer import generate, translate
from kformer.generation import GenerationGraph, Generator
from kformer.search import Greedy, Sample
from kformer.text import WordTokenizer

WORDS = "one two three four five six seven eight nine ten".split()
SHORT = "--max-length=8"


@pytest.fixture(scope="module")
def run(tmp_path_factory, save_lines_run):
    tokenizer = WordTokenizer.learn([" ".join(WORDS)])
    return save_lines_run(tmp_path_factory.mktemp("generate") / "run", tokenizer).path


@pytest.fixture(scope="module", autouse=True)
def graphs():
    """Graphs of the same search and limits are one, as all are of one run: tracing takes longer
    than most tests."""
    graphs = {}

    def graph(model, tokenizers, search=None, **options):
        made = GenerationGraph(model, tokenizers, search, **options)
        return graphs.setdefault(repr((made.search, made.limits, made.max_length)), made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kformer.generation, "GenerationGraph", graph)
        yield graphs


@pytest.fixture
def main(capsysbinary, monkeypatch):
    """Runs the command line: exit status, lines of stdout, stderr."""

    def main(*arguments, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=bool))
        status = generate.main([str(argument) for argument in arguments])
        out, err = (stream.decode() for stream in capsysbinary.readouterr())
        assert out == "" or out.endswith("\n")
        return status, out.split("\n")[:-1], err

    return main


def texts(run, prompts, search):
    found = Generator.from_run(run, search, max_length=8).generate(prompts)
    return [[hypothesis.text for hypothesis in of_prompt] for of_prompt in found]


def test_each_line_is_a_prompt_and_one_line_comes_out(main, run, tmp_path):
    prompts = ["one two", "", "five"]
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(prompts) + "\n")
    expected = [found[0] for found in texts(run, prompts, Sample(seed=4))]
    assert len(set(expected)) == 3
    assert main(run, file, "--seed=4", SHORT)[:2] == (0, expected)
    assert main(run, "--seed=4", SHORT, stdin=file.read_bytes())[:2] == (0, expected)
    alone = [texts(run, ["one two"], Sample())[0][0]]
    assert main(run, "--prompt", "one two", SHORT)[:2] == (0, alone)


def test_greedy_and_several_samples(main, run):
    greedy = texts(run, ["one"], Greedy())[0]
    assert main(run, "--prompt=one", "--greedy", SHORT)[:2] == (0, greedy)
    drawn = texts(run, ["one"], Sample(n=3, seed=1))[0]
    drawn += [""] * (3 - len(drawn))
    for name in ("--n-best", "--num-samples"):
        assert main(run, "--prompt=one", name, 3, "--seed=1", SHORT)[:2] == (0, drawn)


def test_streamed_text_is_the_same(main, run):
    plain = main(run, "--seed=4", SHORT, "--prompt=one two")
    assert main(run, "--seed=4", SHORT, "--prompt=one two", "--stream") == plain
    plain = main(run, "--seed=4", SHORT, stdin=b"five\none two\n")
    assert main(run, "--seed=4", SHORT, "--stream", stdin=b"five\none two\n") == plain


def test_on_a_terminal_one_prompt_is_streamed(main, run, monkeypatch):
    called = []
    whole = Generator.stream
    monkeypatch.setattr(Generator, "stream", lambda *args: called.append(args[1]) or whole(*args))
    expected = main(run, "--prompt=one", SHORT)
    assert not called
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    assert main(run, "--prompt=one", SHORT) == expected
    assert called == ["one"]


def test_json_holds_tokens_and_log_probabilities(main, run):
    status, (line,), _ = main(run, "--prompt=one", "--json", SHORT)
    content = json.loads(line)
    assert status == 0 and content["prompt"] == "one" and content["text"].startswith("one")
    (hypothesis,) = content["hypotheses"]
    assert len(hypothesis["tokens"]) == len(hypothesis["token_log_probabilities"])
    assert sum(hypothesis["token_log_probabilities"]) == pytest.approx(
        hypothesis["log_probability"], abs=1e-4
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt=a", "file.txt"], "give one of them"),
        (["no-such.txt"], "no-such.txt: No such file"),
        (["--prompt=a\nb"], "--prompt must be one line"),
        (["--greedy", "--beam-size=2"], "--greedy is a beam of 1"),
        (["--greedy", "--top-k=2"], "--top-k needs sampling: leave out --greedy"),
        (["--beam-size=2", "--seed=2"], "--seed needs sampling"),
        (["--greedy", "--n-best=2"], "--n-best 2 needs a beam"),
        (["--length-penalty=1"], "--length-penalty needs --beam-size"),
        (["--stream", "--json"], "--stream shows one text"),
        (["--prompt=a", "--max-length=0"], "max_length must be from 1"),
        (["--prompt=a", "--temperature=0"], "temperature"),
        (["--prompt=a", "--min-length=100"], "--min-length 100 and an end do not fit --max-length"),
        (["--prompt=a", "--forbid=zzz"], "--forbid zzz: no piece"),
        (["--prompt=a", "--max-batch-tokens=0"], "max_batch_tokens must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(main, run, arguments, message):
    status, lines, err = main(run, *arguments)
    assert (status, lines) == (2, [])
    errors = [line for line in err.split("\n") if line.startswith("error: ")]
    assert len(errors) == 1 and message in errors[0] and "Traceback" not in err


def test_text_that_is_not_utf8_and_runs_that_are_none_are_named(main, run, tmp_path, save_run):
    assert "standard input, line 2: not UTF-8" in main(run, stdin=b"one\n\xff\n")[2]
    assert "no such run folder" in main(tmp_path / "none", "--prompt=a")[2]
    pairs = save_run(tmp_path / "pairs", WordTokenizer.learn([" ".join(WORDS)])).path
    status, _, err = main(pairs, "--prompt=a")
    assert status == 2 and "was trained on pairs" in err and "kformer.translate" in err


def test_a_prompt_too_long_is_named_by_its_line(main, tmp_path, save_lines_run):
    tokenizer = WordTokenizer.learn([" ".join(WORDS)])
    path = save_lines_run(tmp_path / "run", tokenizer, positions="learned", max_length=5).path
    for arguments in ([], ["--stream"]):
        _, _, err = main(path, *arguments, stdin=b"one\none one one one one\n")
        assert "standard input, line 2: 5 tokens, but the model has room for 4" in err
    _, _, err = main(path, "--prompt=one one one one one")
    assert "error: --prompt: 5 tokens, but the model has room for 4" in err


def test_translate_sends_a_model_of_lines_to_generate(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\n")))
    assert translate.main([str(run)]) == 2
    assert "python -m kformer.generate" in capsys.readouterr().err
