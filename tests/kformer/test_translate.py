import functools
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kformer.graph
import kformer.translator
from kformer import plots, translate
from kformer.alignment import AttentionFrom
from kformer.graph import TranslationGraph
from kformer.search import Beam
from kformer.text import WordTokenizer
from kformer.translator import Translator

ROOT = Path(__file__).resolve().parents[2]
WORDS = "one two three four five six seven eight nine ten".split()
# Blank lines, CRLF, a separator that is no line end, and no LF at the end.
LINES = ["one two", "", "three\u2028four", "   ", "five\r", "six\x0bseven", "two", "one ten nine"]
CONTENT = "\n".join(LINES).encode()


@pytest.fixture(scope="module")
def run(tmp_path_factory, save_run):
    tokenizer = WordTokenizer.learn([" ".join(WORDS)])
    path = tmp_path_factory.mktemp("translate") / "run"
    return save_run(path, tokenizer, num_decoder_layers=2).path


@pytest.fixture(scope="module", autouse=True)
def graphs():
    """Graphs of the same model, search and limits are one: tracing takes longer than most tests."""
    graphs = {}

    def graph(model, tokenizers, search=None, **options):
        made = TranslationGraph(model, tokenizers, search, **options)
        key = (model.get_config(), made.search, made.limits, made.attention_from)
        return graphs.setdefault(repr(key), made)

    with pytest.MonkeyPatch.context() as patch:
        for module in (kformer.graph, kformer.translator):
            patch.setattr(module, "TranslationGraph", graph)
        yield graphs


@pytest.fixture(scope="module")
def expected(run):
    """A translation a line of `LINES`."""
    translations = Translator.from_run(run).translate(LINES)
    assert len(set(translations)) >= 5, "so that no two could be exchanged unnoticed"
    return translations


@pytest.fixture
def file(tmp_path):
    def file(content: bytes) -> str:
        path = tmp_path / "input.txt"
        path.write_bytes(content)
        return str(path)

    return file


@pytest.fixture
def main(capsysbinary, monkeypatch):
    """Runs the command line: exit status, lines of stdout, stderr."""

    def main(*arguments, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        status = translate.main([str(argument) for argument in arguments])
        out, err = (stream.decode() for stream in capsysbinary.readouterr())
        assert out == "" or out.endswith("\n")
        return status, out.split("\n")[:-1], err

    return main


def error_of(result, out=()) -> str:
    """The one line of an error; `out` is what came before it, None for anything."""
    status, lines, err = result
    assert status == 2 and (out is None or lines == [*out])
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    return err


def test_a_file_gives_one_line_out_for_each_line_in(main, run, file, expected):
    assert main(run, file(CONTENT)) == (0, expected, "")


def test_standard_input_is_read_without_a_file(main, run, expected):
    assert main(run, stdin=CONTENT) == (0, expected, "")


def test_line_ends_of_windows_and_a_byte_order_mark_change_nothing(main, run, file, expected):
    content = b"\xef\xbb\xbf" + "\r\n".join(LINES).encode() + b"\r\n"
    assert main(run, file(content)) == (0, expected, "")


def test_nothing_in_gives_nothing_out(main, run, file):
    assert main(run, file(b"")) == (0, [], "")
    assert main(run, file(b"\n")) == (0, [""], "")


def test_long_input_is_translated_in_order(main, run, file, expected, monkeypatch):
    monkeypatch.setattr(translate, "_CHUNK", 3)
    assert main(run, file(CONTENT)) == (0, expected, "")


def test_a_missing_run_folder_is_named(main, tmp_path, file):
    assert "no-such-run" in error_of(main(tmp_path / "no-such-run", file(b"one\n")))


def test_the_missing_piece_of_a_run_folder_is_named(main, tmp_path, file):
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "tokenizer").mkdir()
    text = error_of(main(tmp_path, file(b"one\n")))
    assert "best/model.keras is missing" in text


@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_a_file_that_cannot_be_read_is_named(main, run, tmp_path, name):
    assert str(tmp_path / name) in error_of(main(run, tmp_path / name))


@pytest.mark.parametrize("bad", [b"caf\xe9", b"\xff\xfe", b"a\xc3"])
def test_a_line_that_is_not_utf8_is_named(main, run, file, bad):
    path = file(b"one\n\n" + bad + b"\ntwo\n")
    assert f"{path}, line 3: not UTF-8" in error_of(main(run, path))


def test_a_bad_line_of_standard_input_is_named(main, run):
    assert "standard input, line 2: not UTF-8" in error_of(
        main(run, stdin=b"one\n\xff\n"), out=None
    )


# Options


def columns(lines):
    return [line.split("\t") for line in lines]


def test_n_best_are_as_many_lines_for_each_line(main, run, file):
    status, lines, err = main(
        run, file(CONTENT), "--beam-size=4", "--n-best=3", "--length-penalty=0.6", "--with-scores",
        "--with-alignments", "--alignment-layer=0", "--alignment-heads", "1",
    )  # fmt: skip
    assert (status, err, len(lines)) == (0, "", 3 * len(LINES))
    search = Beam(size=4, n_best=3, length_penalty=0.6)
    translator = Translator.from_run(run, search, attention=AttentionFrom(0, (1,)))
    found = translator.translate_nbest(LINES, with_alignments=True)
    for number, translation in enumerate(found):
        for row, hypothesis in zip(lines[3 * number :], translation.hypotheses, strict=False):
            score, text, alignment = row.split("\t")
            assert float(score) == pytest.approx(hypothesis.score, abs=2e-4)
            assert (text, alignment) == (hypothesis.text, str(hypothesis.alignment or ""))
    assert lines[4:6] == ["\t\t"] * 2, "of a blank line there is one translation only"


def test_json_lines_hold_everything(main, run, file):
    status, lines, _ = main(run, file(CONTENT), "--json", "--with-alignments")
    objects = [json.loads(line) for line in lines]
    assert status == 0 and [found["source"] for found in objects] == [
        line.removesuffix("\r") for line in LINES
    ]
    found = Translator.from_run(run).translate_nbest(LINES, with_alignments=True)
    for fields, translation in zip(objects, found, strict=True):
        (hypothesis,) = translation.hypotheses
        assert fields["translation"] == translation.text and fields["parts"] == 1
        (fields,) = fields["hypotheses"]
        assert fields["tokens"] == hypothesis.tokens
        assert fields["ended"] == hypothesis.ended
        assert fields["score"] == pytest.approx(hypothesis.score, abs=1e-4)
        links = hypothesis.alignment and [list(link) for link in hypothesis.alignment.links]
        assert fields.get("alignment") == links


def test_attention_comes_as_a_matrix_in_json(main, run, file):
    status, (line,), _ = main(run, file(b"one two three\n"), "--json", "--with-attention")
    (hypothesis,) = json.loads(line)["hypotheses"]
    attention = hypothesis["attention"]
    assert status == 0 and attention["source_tokens"] == ["one", "two", "three", "</s>"]
    assert len(attention["weights"]) == len(attention["target_tokens"])
    for row in attention["weights"]:
        assert len(row) == 4 and sum(row) == pytest.approx(1, abs=1e-3)
    assert "alignment" not in hypothesis
    assert "add --json" in error_of(main(run, file(b"one\n"), "--with-attention"))


@pytest.fixture
def drawn(monkeypatch):
    """Figures that are written, by the path."""
    drawn, save = {}, plots.save
    monkeypatch.setattr(
        plots, "save", lambda figure, path: (drawn.update({path: figure}), save(figure, path))
    )
    return drawn


def shown_by(figure):
    return [axes.images[0].get_array() for axes in figure.axes if axes.images]


def test_the_attention_of_the_first_line_is_drawn_beside_the_translations(
    main, run, file, expected, tmp_path, drawn
):
    picture = str(tmp_path / "attention.png")
    assert main(run, file(CONTENT), "--plot-attention", picture) == (0, expected, "")
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    (maps,) = Translator.from_run(run).attention_maps(LINES[:1], expected[:1])
    assert drawn[picture].get_suptitle().split() == f"one two {expected[0]}".split()
    for panel, weights in zip(shown_by(drawn[picture]), [*maps.weights[0], *maps.weights[1]],
                              strict=True):  # fmt: skip
        np.testing.assert_allclose(panel, weights, atol=1e-5)


def test_the_attention_of_a_reference_is_drawn_where_it_is_scored(main, run, file, tmp_path, drawn):
    (tmp_path / "references.txt").write_text("two ten\n")
    picture = str(tmp_path / "attention.svg")
    status, _, _ = main(
        run, file(b"one\n"), "--score", tmp_path / "references.txt", "--plot-attention", picture
    )
    assert status == 0 and drawn[picture].get_suptitle() == "one\ntwo ten"
    assert [panel.shape for panel in shown_by(drawn[picture])] == [(3, 2)] * 4


def test_a_picture_that_cannot_be_written_is_told_before_anything_is_loaded(
    main, run, file, tmp_path, monkeypatch
):
    monkeypatch.setattr(translate, "import_tensorflow", None)
    path = file(CONTENT)
    text = error_of(main(run, path, "--plot-attention", tmp_path / "a.jpg"))
    assert "a.jpg: pictures end in" in text
    assert "no folder" in error_of(main(run, path, "--plot-attention", tmp_path / "b" / "a.png"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = error_of(main(run, path, "--plot-attention", tmp_path / "a.png"))
    assert "kformer[plots]" in text


def test_an_export_which_tells_only_a_mean_is_no_picture(main, file, tmp_path):
    (tmp_path / "kformer.json").write_text("{}")
    text = error_of(main(tmp_path, file(b"one"), "--plot-attention", tmp_path / "a.png"))
    assert "give the run folder" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "input.txt: has no first line"),
        (b"\none\n", "input.txt, line 1: blank"),
        (b"one " * 129 + b"\n", "input.txt, line 1: translated in 2 parts"),
    ],
)
def test_a_first_line_without_a_picture_is_named(main, run, file, tmp_path, content, message):
    picture = tmp_path / "attention.png"
    text = error_of(main(run, file(content), "--plot-attention", picture))
    assert message in text and not picture.exists()


def test_references_are_scored_in_place_of_translating(main, run, file, tmp_path):
    references = tmp_path / "references.txt"
    references.write_text("two\n\nten ten one\n")
    status, lines, _ = main(run, file(b"one\ntwo three\nfour\n"), "--score", references)
    scores = Translator.from_run(run).score(
        ["one", "two three", "four"], ["two", "", "ten ten one"]
    )
    assert status == 0
    for (log_probability, perplexity), score in zip(columns(lines), scores, strict=True):
        assert float(log_probability) == pytest.approx(score.log_probability, abs=1e-3)
        assert float(perplexity) == pytest.approx(score.perplexity, rel=1e-3)
    _, (first, *_), _ = main(run, file(b"one\nx\nx\n"), "--score", references, "--json")
    assert json.loads(first)["tokens"] == ["two", "</s>"]


def test_translations_begin_as_a_file_of_prefixes_says(main, run, file, tmp_path):
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("nine nine\n\n")
    status, (first, second), _ = main(run, file(b"one\ntwo\n"), "--prefix", prefixes)
    assert status == 0 and first.startswith("nine nine")
    assert second == Translator.from_run(run).translate(["two"])[0]


@pytest.mark.parametrize("option", ["--prefix", "--score"])
def test_a_file_beside_the_text_with_other_lines_is_named(main, run, file, tmp_path, option):
    beside = tmp_path / "beside.txt"
    beside.write_text("one\ntwo\n")
    text = error_of(main(run, file(b"one\n"), option, beside), out=None)
    assert "input.txt has 1 lines" in text and "beside.txt has more" in text
    text = error_of(main(run, option, beside, stdin=b"a\nb\nc\n"), out=None)
    assert "beside.txt has 2 lines, standard input has more" in text
    assert "no-such.txt" in error_of(main(run, file(b"one\n"), option, tmp_path / "no-such.txt"))


def test_samples_are_repeatable_and_follow_the_seed(main, run, file, graphs):
    arguments = [run, file(CONTENT * 3), "--sample", "--n-best=2", "--temperature=2"]
    one, other = (main(*arguments, f"--seed={seed}") for seed in (1, 2))
    graphs.clear()
    again = main(*arguments, "--seed=1")
    assert one == again and one[0] == 0 and one[1] != other[1]


def test_limits_reach_the_search(main, run, file):
    _, lines, _ = main(run, file(CONTENT), "--min-length=3", "--max-length=4", "--forbid=seven")
    assert {len(line.split()) for line in lines} <= {0, 3, 4}
    assert not any("seven" in line for line in lines)
    _, lines, _ = main(run, file(b"one two three\n"), "--length-factor=0", "--length-margin=1")
    assert len(lines[0].split()) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best=3"], "--beam-size 3"),
        (["--length-penalty=0.6"], "--length-penalty needs --beam-size"),
        (["--top-k=5"], "--top-k needs --sample"),
        (["--sample", "--beam-size=2"], "give one of them"),
        (["--beam-size=0", "--n-best=0"], "`size` must be at least 1"),
        (["--sample", "--top-p=2"], "`top_p` must be above 0"),
        (["--forbid=elephant"], "--forbid elephant: no piece"),
        (["--max-length=0"], "max_length must be at least 1"),
        (["--min-length=4", "--max-length=4"], "--min-length 4 and an end do not fit --max-len"),
        (["--length-margin=-3"], "length_margin must not be negative"),
        (["--with-alignments", "--alignment-layer=7"], "2 decoder layers"),
        (["--with-alignments", "--alignment-heads", "5"], "2 heads"),
    ],
)
def test_options_that_make_no_sense_are_named(main, run, file, options, message):
    assert message in error_of(main(run, file(b"one\n"), *options))


def test_a_prefix_too_long_is_named_by_its_line(main, run, file, tmp_path, monkeypatch):
    monkeypatch.setattr(translate, "_CHUNK", 2)
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("one\n\ntwo\none two three four five\n")
    path = file(b"one\n\ntwo\nthree\n")
    text = error_of(main(run, path, "--prefix", prefixes, "--max-length=4"), out=None)
    assert text.startswith(f"error: {path}, line 4: 5 tokens")


def test_options_may_stand_before_the_file(main, run, file, expected):
    assert main("--max-batch-sentences", "2", run, file(CONTENT)) == (0, expected, "")
    assert main(run, "--max-batch-sentences", "2", file(CONTENT)) == (0, expected, "")


# Processes


@pytest.fixture(scope="module")
def processes(run):
    """Three that translate standard input, started together as that takes seconds."""
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "kformer.translate", run], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=listen,
        )
        for _ in range(3)
    ]  # fmt: skip
    yield iter(started)
    for process in started:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        process.wait()


def answered(process, line: bytes):
    process.stdin.write(line)
    process.stdin.flush()
    # Would wait for ever if lines were held back; the test's time limit would tell.
    assert process.stdout.readline().endswith(b"\n")


def test_lines_that_come_slowly_are_answered_at_once_and_an_interrupt_ends_it(processes):
    process = next(processes)
    for line in (b"one\n", b"two\n", b"one\n"):
        answered(process, line)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert b"Traceback" not in process.stderr.read()


def test_a_reader_that_leaves_is_no_error_and_ends_it_at_once(processes):
    """While more lines wait, and still more may come."""
    process = next(processes)
    answered(process, b"one\n")
    process.stdout.close()
    process.stdin.write(b"one two three\n" * 2000)
    process.stdin.flush()
    assert process.wait(30) == 141
    err = process.stderr.read()
    assert b"Traceback" not in err and b"Broken" not in err


def test_a_process_translates_what_is_piped_into_it(processes, expected):
    process = next(processes)
    out, err = process.communicate(CONTENT, timeout=120)
    assert process.returncode == 0, err.decode()
    assert out.decode() == "".join(f"{line}\n" for line in expected)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--with-alignments"], "--with-alignments"),
        (["--json", "--with-attention"], "--with-attention"),
        (["--plot-attention=picture.png"], "--plot-attention"),
        (["--beam-size=2", "--coverage-penalty=0.1"], "coverage_penalty"),
    ],
)
def test_what_shows_attention_is_named_where_there_is_none(
    main, file, save_run, random_recurrent, tmp_path, monkeypatch, options, name
):
    monkeypatch.chdir(tmp_path)
    tokenizer = WordTokenizer.learn(["one two"])
    run = save_run(tmp_path / "run", tokenizer, build=random_recurrent, attention="none")
    error = error_of(main(run.path, file(b"one\n"), *options))
    assert error.startswith(f"error: {name}: the model") and "has no attention" in error
