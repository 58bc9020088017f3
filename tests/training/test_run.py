"""What `training.run` refuses once it reads the text, and what it leaves behind then."""

import os
import re

import pytest
import tensorflow as tf

from training.callbacks.stopping import UpdateLimit
from training.run import main

WORDS = "red green blue old new big small fast slow good bad hot cold".split()
# Pairs that share no source, so that three parts can be cut.
PAIRS = [(f"the {a} {b} house", f"das {b} {a} haus") for a in WORDS for b in WORDS if a != b]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
SMALL = [
    "tiny", "--tokenizer.vocab_size=400", "--model.d_model=16", "--model.d_ff=16",
    "--train.batch_tokens=128", "--train.updates=4", "--train.validate_every=2",
    "--train.warmup_updates=2", "--train.precision=float32",
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder):
    def write(name, content):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write


def tree(folder):
    """Every file below a folder, hidden ones too, with its content."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def refusal(folder, capfd):
    """The one line that a run is refused with, having changed nothing."""

    def refusal(*arguments):
        before = tree(folder)
        capfd.readouterr()
        status = main([*SMALL, *arguments])
        err = capfd.readouterr().err
        ours = [line for line in err.split("\n") if line.startswith("error: ")]
        assert status == 2
        assert len(ours) == 1 and "Traceback" not in err
        assert tree(folder) == before
        return ours[0].removeprefix("error: ")

    return refusal


@pytest.mark.parametrize("key", ["train", "valid", "test"])
def test_a_missing_file_is_named(refusal, write, key):
    options = {"train": write("good.tsv", TSV), key: "no-such.tsv"}
    arguments = [f"--data.{name}={file}" for name, file in options.items()]
    assert "no-such.tsv: no such file" in refusal("--run", "r", *arguments)


def test_a_folder_for_a_file_is_named(refusal, folder):
    (folder / "text.tsv").mkdir()
    assert "text.tsv: is a directory" in refusal("--run", "r", "--data.train=text.tsv")


def test_a_pipe_which_could_be_read_once_only_is_named(refusal, folder):
    os.mkfifo(folder / "text.tsv")
    assert "text.tsv: is no regular file" in refusal("--run", "r", "--data.train=text.tsv")


def test_parallel_files_of_unequal_length_are_named_with_their_lengths(refusal, write):
    spec = ",".join([write("a.en", "one\ntwo\nthree\n"), write("a.de", "eins\nzwei\n")])
    text = refusal("--run", "r", f"--data.train={spec}")
    assert "a.en has 3 lines" in text and "a.de has 2 lines" in text


def test_text_that_is_not_utf8_is_named_by_file_and_line(refusal, write):
    content = TSV.encode() + b"caf\xe9\tKaffee\n"
    spec = write("text.tsv", content)
    text = refusal("--run", "r", f"--data.train={spec}")
    assert f"text.tsv, line {len(PAIRS) + 1}: not UTF-8" in text


@pytest.mark.parametrize("content", ["", "\n\n", "no tab here\n"])
def test_a_corpus_without_a_pair_is_named(refusal, write, content):
    text = refusal("--run", "r", f"--data.train={write('text.tsv', content)}")
    assert text.startswith("text.tsv: ")


def test_a_corpus_of_too_long_pairs_only_is_refused_by_the_limit(refusal, write):
    spec = write("text.tsv", TSV)
    text = refusal("--run", "r", f"--data.train={spec}", "--data.max_length=1")
    assert "data.max_length is 1" in text and "too long" in text


def test_a_vocabulary_too_small_is_refused(refusal, write):
    spec = write("text.tsv", TSV)
    text = refusal("--run", "r", f"--data.train={spec}", "--tokenizer.vocab_size=100")
    assert "vocab_size" in text and "100" in text


def test_folders_made_on_the_way_to_a_run_folder_go_too(refusal, write):
    spec = write("text.tsv", "")
    refusal("--run", "new/folders/run", f"--data.train={spec}")


def test_a_run_folder_that_exists_is_left_as_it_is(refusal, write, folder):
    (folder / "r").mkdir()
    write("r/config.yaml", "precious")
    text = refusal("--run", "r", f"--data.train={write('text.tsv', TSV)}")
    assert text.startswith("r: exists") and "--overwrite" in text


@pytest.mark.parametrize("content", ["", "bad\n"])
def test_overwriting_with_a_bad_corpus_leaves_the_old_run_as_it_is(refusal, write, folder, content):
    (folder / "r").mkdir()
    write("r/config.yaml", "precious")
    refusal("--run", "r", "--overwrite", f"--data.train={write('text.tsv', content)}")


def test_overwriting_spares_a_folder_that_is_no_run(refusal, write, folder):
    (folder / "thesis").mkdir()
    write("thesis/chapter1.txt", "years of work")
    text = refusal("--run", "thesis", "--overwrite", f"--data.train={write('text.tsv', TSV)}")
    assert text.startswith("thesis: ")


def test_the_working_folder_is_no_run_folder(refusal, write):
    assert refusal("--run=.", "--overwrite", f"--data.train={write('text.tsv', TSV)}")


def test_validation_text_longer_than_the_learned_positions_is_refused(refusal, write):
    spec = write("text.tsv", TSV)
    write("long.tsv", " ".join(WORDS * 3) + "\tlang\n")
    text = refusal(
        "--run=r", f"--data.train={spec}", "--data.valid=long.tsv", "--data.max_length=20",
        "--model.positions=learned", "--model.max_length=21",
    )  # fmt: skip
    assert "model.max_length" in text and "long.tsv" in text


def test_learned_positions_need_no_room_for_the_padding_of_batches(write, folder, capfd):
    """Widths are multiples of 4 in training and of 8 in translation; 6 tokens and END are 7."""
    spec = write("text.tsv", TSV)
    status = main(
        [*SMALL, "--run=r", f"--data.train={spec}", "--data.max_length=6",
         "--tokenizer.kind=word", "--model.positions=learned", "--model.max_length=7"]
    )  # fmt: skip
    assert status == 0, capfd.readouterr().err
    assert (folder / "r" / "scores.json").is_file()


def test_training_that_diverges_ends_in_one_line_and_saves_no_ruined_model(write, folder, capfd):
    spec = write("text.tsv", TSV)
    status = main(
        [*SMALL, "--run=r", f"--data.train={spec}", "--train.learning_rate=1e30",
         "--train.max_left_out=2", "--train.updates=40", "--train.validate_every=20",
         "--scoring.samples=0"]
    )  # fmt: skip
    err = capfd.readouterr().err
    (line,) = [line for line in err.split("\n") if line.startswith("error: ")]
    assert status == 2 and "Traceback" not in err
    assert "diverged: 2 updates in a row" in line and "train.learning_rate" in line
    assert not (folder / "r" / "best" / "model.keras").exists()


def test_out_of_memory_names_the_shape_of_the_batch_and_what_to_lower(
    write, folder, capfd, monkeypatch
):
    def exhausted(self, batch, logs=None):
        if batch == 1:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    # As a GPU does from inside `fit`; a CPU would take the machine with it.
    monkeypatch.setattr(UpdateLimit, "on_train_batch_end", exhausted)
    status = main([*SMALL, "--run=r", f"--data.train={write('text.tsv', TSV)}"])
    err = capfd.readouterr().err
    (line,) = [line for line in err.split("\n") if line.startswith("error: ")]
    assert status == 2 and "Traceback" not in err
    assert re.search(r"out of memory at a batch of \(\d+, \d+\) source and \(\d+, \d+\)", line)
    assert "train.batch_tokens" in line and "train.accumulate" in line
