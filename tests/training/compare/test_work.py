"""Which runs are trained, gone on with and left alone."""

import fcntl
import json
import shutil
from types import SimpleNamespace

import pytest

import training.compare.work as work_module
from kformer.errors import InputError
from training.compare.runs import check_unchanged, locked
from training.compare.translations import read_translations
from training.compare.work import work

ALL = ["wide-1", "narrow-1", "wide-2", "narrow-2"]


@pytest.fixture
def watch(commands, monkeypatch):
    """A clock: training takes 70 seconds and translating 20."""
    watch = SimpleNamespace(
        perf_counter=lambda: 70 * len(commands.trained) + 20 * len(commands.translated)
    )
    monkeypatch.setattr(work_module, "time", watch)


def test_all_variants_are_trained_with_a_seed_before_the_next(commands, planned, watch, capsys):
    _, runs = planned()
    assert work(runs, 0) == []
    assert commands.trained == ALL
    assert commands.translated == [(name, "test") for name in ALL]
    assert all(run.is_finished for run in runs)
    out = capsys.readouterr().out
    assert "run 2/4  narrow-1  about 4:30 left" in out
    assert "run 4/4  narrow-2  about 1:30 left" in out
    assert "done in 6:00" in out


def test_finished_runs_tell_how_long_the_others_take(commands, planned, watch, capsys):
    commands.stop_at = "narrow-2"
    with pytest.raises(KeyboardInterrupt):
        work(planned()[1], 0)
    for name in ALL[1:3]:
        shutil.rmtree(planned()[1][ALL.index(name)].folder.path)
    capsys.readouterr()
    work(planned()[1], 0)
    out = capsys.readouterr().out
    # By their figures, 120 seconds; then by the clock, 90.
    assert "run 2/4  narrow-1  about 6:00 left" in out
    assert "run 3/4  wide-2  about 3:00 left" in out


def test_a_run_is_what_the_training_command_would_make(planned, tmp_path):
    _, runs = planned()
    assert runs[3].words == [
        "training.run", "tiny", "--train.updates=4", "--train.validate_every=2",
        "--train.warmup_updates=1", "--model.d_model=16", "--train.seed=2",
        "--run", str(tmp_path / "out" / "narrow-2"),
    ]  # fmt: skip


def test_what_is_finished_is_not_done_again(commands, planned):
    work(planned()[1], 0)
    work(planned()[1], 0)
    assert commands.trained == ALL and len(commands.translated) == 4


def test_a_stopped_experiment_goes_on_where_it_was(commands, planned, capsys):
    commands.stop_at = "wide-2"
    with pytest.raises(KeyboardInterrupt):
        work(planned()[1], 0)
    assert "stopped in run 3/4; the same command goes on" in capsys.readouterr().out
    assert commands.trained == ALL[:3]
    assert work(planned()[1], 0) == []
    assert commands.trained == [*ALL[:3], *ALL[2:]]
    # From its checkpoint, which overwriting would remove.
    assert commands.overwritten == []


def test_a_run_that_was_killed_before_its_first_checkpoint_is_begun_anew(commands, planned):
    _, runs = planned()
    commands.stop_at = "wide-1"
    with pytest.raises(KeyboardInterrupt):
        work(runs, 0)
    shutil.rmtree(runs[0].folder.checkpoints)
    work(runs, 0)
    assert commands.overwritten == ["wide-1"]


def test_a_run_that_was_killed_after_its_last_update_is_only_translated(commands, planned):
    _, runs = planned()
    work(runs, 0)
    commands.trained.clear()
    runs[0].folder.scores.unlink()
    (runs[0].folder.path / "translations" / "test.json").unlink()
    work(runs, 0)
    assert commands.trained == [] and commands.translated[4:] == [("wide-1", "test")]


def test_a_run_that_fails_does_not_keep_others_from_being_made(commands, planned, capsys):
    commands.fail_at = "narrow-1"
    (failed,) = work(planned()[1], 0)
    assert failed == "narrow-1: training.run ended with status 2: diverged"
    assert commands.trained == ALL
    commands.fail_at = None
    assert work(planned()[1], 0) == []
    assert commands.trained == [*ALL, "narrow-1"]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("d_model: 16", "d_model: 8", "narrow-1"),
        # A run might be gone on with for longer, but would not be the same.
        ("updates: 4", "updates: 6", "wide-1"),
        ("warmup_updates: 1", "warmup_updates: 2", "wide-1"),
    ],
)
def test_changed_runs_are_refused_or_else_made_anew(commands, planned, old, new, name):
    from tests.training.compare.conftest import TEXT

    work(planned()[1], 0)
    _, runs = planned(TEXT.replace(old, new))
    changed = next(run for run in runs if run.name == name)
    with pytest.raises(InputError, match=f"{name}: was made with other settings: .*--overwrite"):
        check_unchanged(changed)
    commands.trained.clear()
    work(runs, 0)
    assert commands.trained == commands.overwritten
    assert set(commands.trained) == (set(ALL) if name == "wide-1" else {"narrow-1", "narrow-2"})


def test_more_seeds_variants_and_searches_leave_runs_as_they_are(commands, planned):
    from tests.training.compare.conftest import TEXT

    work(planned()[1], 0)
    commands.trained.clear()
    more = TEXT.replace("[1, 2]", "[2, 3]") + "  deep: {model.num_encoder_layers: 2}\n"
    _, runs = planned(more + "searches: {greedy: {}, beam: {beam_size: 4}}\n")
    for run in runs:
        check_unchanged(run)
    work(runs, 0)
    assert commands.trained == ["deep-2", "wide-3", "narrow-3", "deep-3"]
    assert len(commands.translated) == 4 + 2 * 6


def test_a_search_with_other_options_translates_again(commands, planned):
    text = "{{base: tiny, searches: {{a: {{beam_size: {}}}}}}}"
    for beam_size in (2, 2, 3):
        _, runs = planned(text.format(beam_size))
        work(runs, 0)
        record = json.loads((runs[0].folder.path / "translations" / "a.json").read_text())
        assert record["options"]["beam_size"] == beam_size
    assert len(commands.translated) == 2 and len(commands.trained) == 1


def test_a_folder_of_something_else_is_refused(planned):
    _, runs = planned()
    runs[1].folder.path.mkdir(parents=True)
    check_unchanged(runs[0])
    with pytest.raises(InputError, match="narrow-1: holds no config.yaml, so it is not replaced"):
        check_unchanged(runs[1])


def test_runs_with_other_test_text_are_refused_as_soon_as_they_are_there(commands, planned):
    _, runs = planned()
    work(runs[:1], 0)
    commands.pairs = commands.pairs[:-1]
    with pytest.raises(InputError, match="narrow-1: has another test text than .*wide-1"):
        work(runs, 0)
    assert commands.trained == ALL[:2]


def test_runs_that_translate_nothing_are_refused(commands, planned):
    _, runs = planned()
    work(runs[:1], 0)
    runs[0].folder.tokens_meta.write_text('{"source_tokens": 0}')
    with pytest.raises(InputError, match="wide-1: was trained on lines of one language"):
        work(runs, 0)
    assert commands.trained == ["wide-1"]


def test_translations_that_were_cut_are_refused(commands, planned):
    _, runs = planned()
    work(runs, 0)
    path = runs[0].folder.path / "translations" / "test.txt"
    path.write_text("only one\n")
    with pytest.raises(InputError, match="test.txt: has 1 lines for 4 test sentences"):
        read_translations(runs[0], "")


def test_two_at_once_in_one_folder_are_refused(tmp_path):
    with locked(tmp_path / "out") as lock:
        assert fcntl.fcntl(lock, fcntl.F_GETFD) >= 0
        with pytest.raises(InputError, match="another comparison is at work there"):
            with locked(tmp_path / "out"):
                pass
    with locked(tmp_path / "out"):
        pass


def test_a_model_that_was_trained_further_is_translated_with_again(commands, planned):
    _, runs = planned()
    work(runs, 0)
    commands.translated.clear()
    runs[0].folder.best_model.write_bytes(b"another")
    work(runs, 0)
    assert commands.translated == [("wide-1", "test")]
