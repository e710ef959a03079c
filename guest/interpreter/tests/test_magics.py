"""Magics, shell lines, and source text as models write it."""

import pytest
from harness import Context


def test_o17_failing_shell_lines(ctx: Context) -> None:
    line = ctx.run("!false\n_exit_code")
    assert (line.error, line.text) == (None, "1")
    cell = ctx.run("%%bash\necho before\nexit 3")
    assert cell.stdout == "before\n" and cell.error and cell.error["name"] == "CalledProcessError"
    assert "exit status 3" in cell.error["value"]


@pytest.mark.parametrize(
    ("code", "stdout", "text"),
    [
        ("a=1\r\nprint(a)\r\n", "1\n", None),
        (">>> 1+1", "", "2"),
        ("In [1]: 3", "", "3"),
        ("```python\nprint(1)\n```", "1\n", None),
        ("\n```py\r\nprint(1)\r\n```\n", "1\n", None),
        ("```python\n%%bash\necho hi\n```", "hi\n", None),
        ("\ufeffprint(1)", "1\n", None),
        ("", "", None),
        ("  \n", "", None),
        ("# only a comment", "", None),
        ("  5", "", "5"),
        ("x = '''\n```\n'''\nx", "", "'\\n```\\n'"),
    ],
)
def test_o18_source_text_as_it_comes(ctx: Context, code: str, stdout: str, text: str | None) -> None:
    run = ctx.run(code)
    assert (run.stdout, run.text, run.error) == (stdout, text, None)


@pytest.mark.parametrize("code", ["x\u00a0= 1", "x = 1\0", "```bash\nls\n```", "“x”"])
def test_o18_signs_that_are_no_python(ctx: Context, code: str) -> None:
    run = ctx.run(code)
    assert run.error and run.error["name"] in ("SyntaxError", "ValueError")


def test_o19_magics(ctx: Context) -> None:
    ctx.run("%cd /tmp")
    assert ctx.run("import os\nos.getcwd()").text == "'/tmp'"
    assert ctx.run("%%capture cap\nprint(1)").stdout == ""
    assert ctx.run("cap.stdout").text == "'1\\n'"
    assert "per loop" in ctx.run("%timeit -n1 -r1 1+1").stdout


def test_o19_the_first_run_has_no_output_of_the_hosts(ctx: Context) -> None:
    run = ctx.run("import numpy, pandas, matplotlib.pyplot")
    assert (run.stdout, run.stderr, run.events) == ("", "", [])


def test_shell_output_as_a_value(ctx: Context) -> None:
    assert ctx.run("x = !printf 'a\\nb\\n'; printf c >&2\nx").text == "['a', 'b', 'c']"
    assert ctx.run("name = 'w'\n!echo {name} $name").stdout == "w w\n"
    assert ctx.run("%sx echo k").text == "['k']"
    assert ctx.run("x = !exit 4\n_exit_code").text == "4"


def test_a_command_ended_by_a_signal_has_a_shells_code(ctx: Context) -> None:
    assert ctx.run("!kill -9 $$\n_exit_code").text == "137"


def test_timed_cells(ctx: Context) -> None:
    assert "Wall time" in ctx.run("%%time\nx = 1").stdout and ctx.run("x").text == "1"
    assert ctx.run("%%timeit -n1 -r1\nx").error is None


def test_other_magics(ctx: Context, tmp_path: object) -> None:
    assert ctx.run(f"%%writefile {tmp_path}/w.py\nw = 6").error is None
    assert ctx.run(f"%run {tmp_path}/w.py\nw").text == "6"
    assert ctx.run("%env FOO=bar").error is None and ctx.run("!echo $FOO").stdout == "bar\n"
    assert ctx.run("%%sh\necho sh").stdout == "sh\n"
    assert "w" in ctx.run("%who").stdout and "%who" in ctx.run("%history").stdout


def test_help_is_a_display_and_no_pager(ctx: Context) -> None:
    assert "Return the number of items" in ctx.run("len?").results[0]["text/plain"]
    assert "Return the number of items" in ctx.run("help(len)").stdout


@pytest.mark.parametrize("code", ["%nope", "%%nope\nx", "%timeit"])
def test_magics_that_do_not_exist(ctx: Context, code: str) -> None:
    run = ctx.run(code)
    assert (run.end["status"] == "error") == (run.error is not None)
    if "nope" in code:
        assert run.error and run.error["name"] == "UsageError" and run.stderr == ""


def test_source_of_functions_is_known(ctx: Context) -> None:
    ctx.run("def f():\n    return 'here'")
    assert "return 'here'" in ctx.run("import inspect\nprint(inspect.getsource(f))").stdout
    assert ctx.run("import pickle\npickle.loads(pickle.dumps(f))()").text == "'here'"


@pytest.mark.parametrize(
    "code",
    [
        "n = input('name? ')",
        "import getpass\ngetpass.getpass()",
        "breakpoint()",
        "import pdb; pdb.set_trace()",
        "%debug",
        "%edit",
        "help()",
    ],
)
def test_o22_o23_nothing_waits_for_a_person(ctx: Context, code: str) -> None:
    ctx.run("keep = 41")
    run = ctx.run(code)
    assert run.end["status"] == "error" and run.error
    assert ctx.run("keep").text == "41"


def test_o22_input_says_why(ctx: Context) -> None:
    error = ctx.run("input()").error
    assert error and error["name"] == "StdinNotImplementedError" and "not available" in error["value"]
    assert ctx.run("import sys\nsys.stdin.read()").text == "''"


def test_pdb_after_errors_is_off(ctx: Context) -> None:
    run = ctx.run("%pdb on\n1/0")
    assert run.error and run.error["name"] == "ZeroDivisionError" and run.stderr == ""


def test_o21_asyncio(ctx: Context) -> None:
    assert ctx.run("import asyncio\nasync def f(): return 3\nawait f()").text == "3"
    assert ctx.run("asyncio.run(f())").text == "3"
    assert ctx.run("await f()").text == "3"
    old_style = ctx.run("loop = asyncio.get_event_loop()\nv = loop.run_until_complete(f())\nloop.close()\nv")
    assert (old_style.text, old_style.stderr) == ("3", "")
    assert ctx.run("await f()").text == "3"
    both = ctx.run("await f()\nasyncio.run(f())")
    assert both.error and "use `await`" in both.error["value"] and both.stderr == ""


def test_o41_variables_live_on(ctx: Context) -> None:
    ctx.run("x = 7; import math")
    assert ctx.run("x, math.pi > 3").text == "(7, True)"
