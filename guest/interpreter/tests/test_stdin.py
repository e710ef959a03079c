"""Standard input that a cell is given, and what there is without."""

import pytest
from harness import Context


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("[input(), input()]", "['é', 'b']"),
        ("import sys\nsys.stdin.read()", r"'é\nb\n'"),
        ("import sys\n[line for line in sys.stdin]", r"['é\n', 'b\n']"),
        ("import sys\nsys.stdin.buffer.read(3)", r"b'\xc3\xa9\n'"),
        ("open(0).read()", r"'é\nb\n'"),
        ("x = !cat\nx", "['é', 'b']"),
        (
            "import subprocess\nsubprocess.check_output(['head', '-n1'], text=True), subprocess.check_output('cat', text=True)",
            r"('é\n', 'b\n')",
        ),
        ("import fileinput\nlist(fileinput.input([]))", r"['é\n', 'b\n']"),
    ],
)
def test_a_cell_reads_what_it_is_given(ctx: Context, code: str, text: str) -> None:
    run = ctx.run(code, stdin="é\nb\n")
    assert (run.text, run.error, run.stderr) == (text, None, "")


def test_the_end_of_it(ctx: Context) -> None:
    run = ctx.run("input()\ninput('more? ')", stdin="a\n")
    assert run.error and run.error["name"] == "EOFError" and run.stdout == "more? "
    run = ctx.run("import sys\nsys.stdin.read(), input()", stdin="")
    assert run.error and run.error["name"] == "EOFError"


def test_it_is_gone_after_the_cell(ctx: Context) -> None:
    ctx.run("import sys\nbefore = sys.stdin", stdin="secret\n")
    assert ctx.run("[sys.stdin.read(), before is sys.stdin, __import__('os').read(0, 9)]").text == "['', False, b'']"
    assert ctx.run("x = !cat\nx").text == "[]"
    run = ctx.run("input()")
    assert run.error and run.error["name"] == "StdinNotImplementedError"


def test_a_cell_that_fails_or_is_interrupted_leaves_none_either(ctx: Context) -> None:
    assert ctx.run("1/0", stdin="a\n").error
    assert ctx.run("import time\ntime.sleep(99)", stdin="a\n", interrupt_after=0.3).error
    run = ctx.run("input()")
    assert run.error and run.error["name"] == "StdinNotImplementedError"


def test_passwords_are_lines_of_it(ctx: Context) -> None:
    run = ctx.run("import getpass\ngetpass.getpass('pw: '), getpass.getpass()", stdin="a\nb")
    assert (run.text, run.stderr) == ("('a', 'b')", "pw: Password: ")


def test_a_debugger_takes_commands_from_it(ctx: Context) -> None:
    run = ctx.run("def f():\n    x = 41\n    breakpoint()\n    return x\nf()", stdin="p x + 1\nc\n")
    assert (run.text, run.error) == ("41", None) and "42" in run.stdout
    run = ctx.run("import pdb\npdb.set_trace()\nprint('no')", stdin="p 6 * 7\n")
    assert run.error and run.error["name"] == "BdbQuit" and "42" in run.stdout and "no\n" not in run.stdout
    assert ctx.run("1").text == "1"


@pytest.mark.parametrize(
    "code", ["input('name? ')", "import getpass\ngetpass.getpass()", "breakpoint()", "import pdb\npdb.set_trace()", "%debug"]
)
def test_o22_o23_nothing_waits_for_a_person(ctx: Context, code: str) -> None:
    ctx.run("keep = 41")
    assert ctx.run(code).error
    assert ctx.run("keep").text == "41"


def test_a_stream_of_the_cells_own_is_left_alone(ctx: Context) -> None:
    ctx.run("import io, sys\nsys.stdin = io.StringIO('mine')", stdin="x")
    assert ctx.run("sys.stdin.read()").text == "'mine'"


def test_more_than_a_pipe_holds(ctx: Context) -> None:
    assert ctx.run("import sys\nlen(sys.stdin.read())", stdin="x" * 3_000_000).text == "3000000"
