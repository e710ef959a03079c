"""What a failing cell tells."""

import pytest
from harness import Context


def test_o35_text_and_error(ctx: Context) -> None:
    run = ctx.run("print('found 3')\nraise ValueError('late')")
    assert run.stdout == "found 3\n" and run.error and run.error["value"] == "late"
    assert (run.end["status"], run.end["exit_code"], run.stderr) == ("error", 1, "")


def test_o36_no_colour_codes(ctx: Context) -> None:
    for code in ("1/0", "if zz ==", "%nope", "raise ValueError('\\x1b[31mred')"):
        error = ctx.run(code).error
        assert error and "\x1b" not in error["traceback"], code
    assert (ctx.run("1/0").error or {})["value"] == "division by zero"


def test_o37_lines_are_those_of_the_code(ctx: Context) -> None:
    run = ctx.run("a = 1\n1/0", env={"K": "v"}, cwd="/tmp")
    assert run.error and "Cell In[1], line 2" in run.error["traceback"] and "----> 2 1/0" in run.error["traceback"]
    syntax = ctx.run("zz = 1\nww = 2\nif zz ==\n    pass").error
    assert syntax and (syntax["name"], syntax["value"]) == ("SyntaxError", "invalid syntax (cell 2, line 3)")
    assert (ctx.run("zz").error or {})["name"] == "NameError"
    indented = ctx.run("def f():\n  x=1\n   y=2").error
    assert indented and indented["name"] == "IndentationError" and "line 3" in indented["value"]


@pytest.mark.parametrize(
    "code",
    [
        "input()",
        "!false\n1/0",
        "%%bash\nexit 3",
        "%run /nope.py",
        "from IPython.display import Image\nImage(filename='/nope')",
        "display(1/0)",
    ],
)
def test_o37_frames_of_the_user_only(ctx: Context, code: str) -> None:
    error = ctx.run(code).error
    assert error and "pandastack" not in error["traceback"] and "IPython/" not in error["traceback"], error
    assert "Cell In[1]" in error["traceback"]


def test_o25_exit_keeps_the_session(ctx: Context) -> None:
    ctx.run("keep = 41")
    for code, value, exit_code in (
        ("import sys; sys.exit(3)", "3", 3),
        ("exit()", "0", 0),
        ("quit()", "0", 0),
        ("import sys\ndef f(): sys.exit('bye')\nf()", "bye", 1),
        ("sys.exit()", "", 0),
        ("sys.exit(10**5000)", None, 1),
        ("import warnings; warnings.simplefilter('always'); sys.exit(True)", "True", 1),
    ):
        run = ctx.run(code)
        assert run.error and run.error["name"] == "SystemExit" and run.end["exit_code"] == exit_code, run
        assert value is None or run.error["value"] == value
        assert run.stderr == ""
        assert ctx.run("keep").text == "41"


def test_o24_a_killed_context_is_reported(zygote: object, ctx: Context) -> None:
    from harness import ChannelClosed, Zygote

    assert isinstance(zygote, Zygote)
    with pytest.raises(ChannelClosed):
        ctx.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    while not any(e["pid"] == ctx.pid for e in zygote.exits):
        zygote.expect("exited")
    assert next(e for e in zygote.exits if e["pid"] == ctx.pid) == {"op": "exited", "pid": ctx.pid, "exit_code": None, "signal": 9}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("class E(Exception):\n    def __str__(self): raise TypeError('q')\nraise E()", "E"),
        ("def r(): return r()\nr()", "RecursionError"),
        ("raise BaseException('x')", "BaseException"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError"),
        ("import asyncio\nasync def f(): raise OSError('as')\nawait f()", "OSError"),
        ("raise type('E', (Exception,), {'_render_traceback_': lambda s: 1/0})()", "E"),
        ("e = ValueError(); e.__cause__ = e\nraise e", "ValueError"),
        ("await f(", "SyntaxError"),
        ("return 5", "SyntaxError"),
        ("exec('1/0')", "ZeroDivisionError"),
    ],
)
def test_exceptions_of_all_kinds(ctx: Context, code: str, name: str) -> None:
    run = ctx.run(code)
    assert run.error and run.error["name"] == name and run.end["exit_code"] == 1
    assert len(run.error["traceback"]) < 20_000
    assert sum(e["op"] == "error" for e in run.events) == 1
    assert ctx.run("1").text == "1"


def test_groups_show_what_is_in_them(ctx: Context) -> None:
    error = ctx.run("raise ExceptionGroup('g', [ValueError('a'), TypeError('b')])").error
    assert error and "ValueError: a" in error["traceback"] and "TypeError: b" in error["traceback"]


def test_chains_and_notes(ctx: Context) -> None:
    error = ctx.run("try:\n    1/0\nexcept Exception as e:\n    e.add_note('mind')\n    raise KeyError('k') from e").error
    assert error and all(part in error["traceback"] for part in ("ZeroDivisionError", "mind", "direct cause", "KeyError"))


def test_a_deep_recursion_says_what_was_left_out(ctx: Context) -> None:
    error = ctx.run("def r(): return r()\nr()").error
    assert error and "frames left out" in error["traceback"]


def test_long_errors_are_cut(ctx: Context) -> None:
    error = ctx.run("raise type('T' * 100000, (Exception,), {})('z' * 3_000_000)").error
    assert error and len(error["name"]) < 2000 and len(error["value"]) < 1_100_000 and len(error["traceback"]) < 1_100_000


def test_errors_in_threads_are_text(ctx: Context) -> None:
    run = ctx.run("import threading\nt = threading.Thread(target=lambda: 1/0); t.start(); t.join()")
    assert run.error is None and "ZeroDivisionError" in run.stderr


def test_errors_inside_captured_cells(ctx: Context) -> None:
    run = ctx.run("%%capture c\nprint(1)\n1/0")
    assert run.error and run.error["name"] == "ZeroDivisionError" and run.end["status"] == "error"


def test_o26_out_of_memory(zygote: object) -> None:
    from harness import Zygote

    assert isinstance(zygote, Zygote)
    context = zygote.fork({"PANDASTACK_MEMORY_LIMIT_BYTES": str(2 << 30)})
    try:
        run = context.run("b = []\nwhile True: b.append(bytearray(20_000_000))")
        assert run.error and run.error["name"] == "MemoryError" and "line 2" in run.error["traceback"]
        assert context.run("'ok'").text == "'ok'"
        assert context.run("del b")
        assert context.run("len(bytearray(500_000_000))").text == "500000000"
        assert context.run("import numpy as np\nnp.zeros(10**12)").error is not None
        assert context.run("import os\n'PANDASTACK_MEMORY_LIMIT_BYTES' in os.environ").text == "False"
    finally:
        context.close()


def test_tb_shows_the_last_error_and_is_none(ctx: Context) -> None:
    assert ctx.run("%tb").error is None
    ctx.run("1/0")
    run = ctx.run("%tb")
    assert run.error is None
    assert "ZeroDivisionError: division by zero" in run.stderr
    assert "Cell In[" in run.stderr and "ipython-input" not in run.stderr


@pytest.mark.parametrize(
    "last",
    ["break", "return 1", "await f() if False else lambda: (yield)", "def f():\n    return await g()", "nonlocal x", "x: int\nglobal x"],
)
def test_nothing_runs_of_a_cell_that_only_the_compiler_refuses(ctx: Context, last: str) -> None:
    run = ctx.run(f"ran = 1\nprint('ran')\nimport asyncio\n{last}")
    if run.error is None:
        assert last.startswith("await")
        return
    assert run.error["name"] == "SyntaxError" and (run.stdout, run.stderr) == ("", "")
    assert (ctx.run("ran").error or {})["name"] == "NameError"


def test_a_refused_cell_with_a_top_level_await_leaves_nothing_behind(ctx: Context) -> None:
    run = ctx.run("import asyncio\nprint('ran')\nawait asyncio.sleep(0)\ndef f(): return await g()\nprint('x')")
    assert run.error and run.error["name"] == "SyntaxError" and (run.stdout, run.stderr) == ("", "")


def test_a_warning_of_the_compiler_comes_once(ctx: Context) -> None:
    assert ctx.run("x = 1\nx is 1").stderr.count("SyntaxWarning") == 1


def test_exit_takes_a_code(ctx: Context) -> None:
    ctx.run("keep = 41")
    for call, code in (("exit(3)", 3), ("quit(0)", 0), ("exit()", 0), ("exit", 0), ("exit('no')", 1)):
        run = ctx.run(call)
        assert run.error and (run.error["name"], run.end["exit_code"]) == ("SystemExit", code), call
    assert ctx.run("keep").text == "41"


def test_a_repr_that_overflows_is_an_error_and_no_other_value(ctx: Context) -> None:
    run = ctx.run("l = []\nfor _ in range(300_000): l = [l]\nl")
    assert run.results == [] and run.error and run.error["name"] == "RecursionError"
    assert ctx.run("1").text == "1"


def test_a_lone_surrogate_is_a_value(ctx: Context) -> None:
    assert ctx.run(r"'\ud83d'").error is None
