"""Commands as processes of their own."""

import os
import signal
import sys
import threading

import pytest

from training.compare.child import CommandError, run_module


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module that `python -m` finds."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def module(code):
        (tmp_path / "said.py").write_text(code)
        return "said"

    return module


def test_what_a_command_prints_is_shown_and_kept(module, tmp_path):
    lines, log = [], tmp_path / "logs" / "a.log"
    name = module("import sys; print('one', *sys.argv[1:]); print('zwölf', file=sys.stderr)")
    for _ in range(2):
        run_module([name, "x y"], log, lines.append)
    assert sorted(lines) == ["one x y", "one x y", "zwölf", "zwölf"]
    text = log.read_text("utf-8")
    assert text.count("$ python -m said x y\n") == 2 and text.count("zwölf\n") == 2


def test_the_error_of_a_command_is_told(module, tmp_path):
    name = module("import sys; print('error: no such file', file=sys.stderr); sys.exit(2)")
    with pytest.raises(CommandError, match="^said ended with status 2: no such file$"):
        run_module([name], tmp_path / "a.log", print)
    with pytest.raises(CommandError, match="ended with status 1: see .*a.log"):
        run_module([module("1 / 0")], tmp_path / "a.log", lambda line: None)


def test_a_command_that_was_stopped_by_itself_stops_all(module, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_module([module("import sys; sys.exit(130)")], tmp_path / "a.log", print)


@pytest.fixture
def listening():
    """Interrupts are heard, also where the tests are a shell's background job."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reaches_the_command_once_and_its_end_is_awaited(
    module, tmp_path, number, listening
):
    name = module(
        "import signal, sys, time, pathlib\n"
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "print('ready', flush=True)\n"
        "while not count: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print('x' * 100_000, flush=True)\n"  # More than waits unread.
        f"pathlib.Path({str(tmp_path / 'saved')!r}).write_text(str(len(count)))\n"
        "sys.exit(130)\n"
    )

    def show(line):
        if line == "ready":
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_module([name], tmp_path / "a.log", show)
    assert (tmp_path / "saved").read_text() == "1"
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_runs_with_the_same_python(module, tmp_path):
    lines = []
    run_module([module("import sys; print(sys.executable)")], tmp_path / "a.log", lines.append)
    assert lines == [sys.executable]
