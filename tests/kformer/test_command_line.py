"""How a command that ends early looks from the shell: real processes, real pipes."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from kformer.command_line import run_command
from kformer.errors import InputError
def command():
    {body}
    return 0
sys.exit(run_command(command))
"""


def shell(body, ending=""):
    program = [sys.executable, "-c", PROGRAM.format(body=body)]
    return subprocess.run(
        ["bash", "-c", f'"$@" {ending}', "bash", *program], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("pass", 0, ""),
        ("raise InputError('a.tsv, line 3: no tab')", 2, "error: a.tsv, line 3: no tab\n"),
        ("open('/no/such/file')", 2, "error: /no/such/file: No such file or directory\n"),
        ("raise KeyboardInterrupt", 130, "interrupted\n"),
    ],
)
def test_what_a_user_can_put_right_is_one_line_and_a_status(body, status, message):
    result = shell(body)
    assert (result.returncode, result.stderr) == (status, message)


def test_a_fault_of_the_program_keeps_its_traceback():
    result = shell("raise RuntimeError('ours')")
    assert result.returncode == 1 and "Traceback" in result.stderr


def test_a_reader_that_has_enough_ends_it_quietly():
    result = shell(
        "[print('line', flush=True) for _ in range(100_000)]", "| head -n 1; exit ${PIPESTATUS[0]}"
    )
    assert (result.returncode, result.stdout, result.stderr) == (141, "line\n", "")


def test_a_closed_standard_output_is_named():
    result = shell("print('lost')", ">&-")
    assert result.returncode == 2
    assert result.stderr.startswith("error: standard output is closed")


def test_what_is_to_be_removed_at_the_end_is_though_a_thread_still_reads():
    program = """
import atexit, sys, threading
from kformer.command_line import leave
threading.Thread(target=sys.stdin.buffer.readline, daemon=True).start()
atexit.register(print, "removed")
leave(3)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    # Its input stays open.
    assert process.wait(timeout=60) == 3
    assert process.stdout.read() == "removed\n"
    process.communicate()
