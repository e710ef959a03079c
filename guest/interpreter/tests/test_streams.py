"""Text: whose it is, in which order, and what user code may do to the streams."""

import pytest
from harness import Context


def late(run: object, cell: int) -> str:
    return "".join(m["text"] for m in run.late if m["cell"] == cell)  # type: ignore[attr-defined]


def test_o20_late_prints_belong_to_their_cell(ctx: Context) -> None:
    code = "import threading, time\ngo = threading.Event()\ndef w():\n    go.wait()\n    for i in range(3): print('th', i)\n"
    first = ctx.run(code + "t = threading.Thread(target=w); t.start()")
    assert first.end["threads"] == 1
    second = ctx.run("print('b'); go.set(); t.join()")
    assert (second.stdout, late(second, 1), second.end["threads"]) == ("b\n", "th 0\nth 1\nth 2\n", 0)
    assert ctx.run("print('c')").stdout == "c\n"


def test_o20_late_prints_of_tasks(ctx: Context) -> None:
    ctx.run("import asyncio\ngo = asyncio.Event()\nasync def w():\n    await go.wait()\n    print('task')")
    assert ctx.run("t = asyncio.create_task(w())\nawait asyncio.sleep(0)").end["tasks"] == 1
    run = ctx.run("go.set()\nawait t\nprint('b')")
    assert (run.stdout, late(run, 2), run.end["tasks"]) == ("b\n", "task\n", 0)


def test_pool_work_belongs_to_its_submitter(ctx: Context) -> None:
    ctx.run("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\nlist(pool.map(print, range(2)));")
    run = ctx.run("list(pool.map(print, range(2)));")
    assert (sorted(run.stdout), run.late) == (sorted("0\n1\n"), [])


def test_waiting_pool_threads_do_not_count_as_working(ctx: Context) -> None:
    run = ctx.run("import asyncio\nawait asyncio.to_thread(print, 'x')")
    assert (run.stdout, run.end["threads"]) == ("x\n", 0)


def test_a_huge_late_text_comes_in_pieces(ctx: Context) -> None:
    ctx.run("import sys, threading\ngo = threading.Event()\ndef w():\n    go.wait(); sys.stdout.write('y' * 50_000_000)\n")
    ctx.run("t = threading.Thread(target=w); t.start()")
    assert len(late(ctx.run("go.set(); t.join()"), 2)) == 50_000_000


def test_o31_o34_volume(ctx: Context) -> None:
    assert ctx.run("print('☕' * 100000)").stdout == "☕" * 100000 + "\n"
    text = ctx.run("for i in range(200000): print(i)").stdout
    assert len(text) == 1_288_890 and text.endswith("\n199999\n")


def test_o30_much_text_does_not_stop_the_next_cell(ctx: Context) -> None:
    assert len(ctx.run("print('x' * 5_000_000)").stdout) == 5_000_001
    assert ctx.run("2").text == "2"


def test_o32_carriage_returns(ctx: Context) -> None:
    pytest.importorskip("tqdm")
    bar = ctx.run("from tqdm import tqdm\nfor i in tqdm(range(20), mininterval=0): pass")
    assert bar.stdout == "" and "\r" in bar.stderr and bar.end["threads"] == 0
    assert ctx.run("print(1, end='\\r'); print(2)").stdout == "1\r2\n"


def test_o33_half_a_character(ctx: Context) -> None:
    run = ctx.run("print('A\\ud800B')")
    assert (run.stdout, run.stderr) == ("A\\ud800B\n", "")
    assert ctx.run("print('ok')").stdout == "ok\n"


def test_o42_text_of_children_in_order(ctx: Context) -> None:
    code = (
        "import os, subprocess, sys\nprint('0', end='')\nos.system('echo A'); os.write(1, b'B\\n'); subprocess.run(['echo','C'])\n"
        "subprocess.Popen(['echo','D'], stdout=sys.stdout).wait()\nprint('E', end='')\nsubprocess.run(['echo','F'])"
    )
    for _ in range(20):
        assert ctx.run(code + ";").stdout == "0A\nB\nC\nD\nEF\n"


def test_printed_before_an_event_is_there_before_it(ctx: Context) -> None:
    assert ctx.run("print('x', end='')\n5").stdout == "x"
    assert ctx.run("import sys\nsys.stdout.buffer.write(b'raw');").stdout == "raw"


def test_redirection(ctx: Context) -> None:
    assert (
        ctx.run("import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as b: print('in')\nb.getvalue()").text == "'in\\n'"
    )
    ctx.run("import sys\nsys.stdout = io.StringIO()\nprint('kept')")
    assert ctx.run("v = sys.stdout.getvalue(); sys.stdout = sys.__stdout__; v").text == "'kept\\n'"
    assert ctx.run("print('back')").stdout == "back\n"


@pytest.mark.parametrize(
    "harm",
    [
        "del sys.stdout",
        "sys.stdout = None",
        "sys.stdout.close()",
        "sys.stdout.detach()",
        "os.close(1)",
        "os.close(1); os.close(2); print('x')",
        "sys.stdout = sys.stderr = 'text'",
        "del sys.__stdout__, sys.stderr",
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer); sys.stdout = None; gc.collect()",
        "os.set_blocking(1, False)",
        "os.closerange(3, 600)",
        "import builtins; del builtins.input, builtins.exit",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])",
        "sys.excepthook = sys.displayhook = None",
        "sys.modules.pop('__main__')",
        "get_ipython().display_formatter.format = None",
    ],
)
def test_damage_is_undone_or_stays_a_plain_error(ctx: Context, harm: str) -> None:
    ctx.run("import io, os, sys, gc")
    ctx.run(harm)
    if harm.startswith("sys.stdout = sys.stderr = 'text'"):
        ctx.run("sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__")
    assert ctx.run("print('ok')").stdout.endswith("ok\n")
    assert ctx.run("1/0").end["status"] == "error"


def test_log_handlers_of_earlier_cells(ctx: Context) -> None:
    ctx.run("import logging, sys\nlogging.basicConfig(level='INFO', format='%(message)s')")
    assert ctx.run("logging.info('one')").stderr == "one\n"
    assert ctx.run("print('p'); logging.info('two')").stderr == "two\n"


def test_warnings(ctx: Context) -> None:
    assert "UserWarning: careful" in ctx.run("import warnings\nwarnings.warn('careful')").stderr


def test_o36_the_codes_own_colours_stay(ctx: Context) -> None:
    assert ctx.run("print('\\x1b[31mred\\x1b[0m')").stdout == "\x1b[31mred\x1b[0m\n"


def test_printed_text_is_not_kept(ctx: Context) -> None:
    ctx.run("print('x' * 1000)\n'value'\n")
    assert ctx.run("len(get_ipython().history_manager.outputs)").text == "0"


def test_descriptors_that_a_cell_redirected_or_closed_are_put_right(ctx: Context) -> None:
    ctx.run("import os, subprocess\nn = os.open('/dev/null', os.O_WRONLY); os.dup2(n, 1); os.dup2(n, 2); os.close(n); os.close(0)")
    run = ctx.run("import sys\nprint('out'); print('err', file=sys.stderr); subprocess.run(['cat']).returncode")
    assert (run.stdout, run.stderr, run.text) == ("out\n", "err\n", "0")


def test_an_encoding_that_a_cell_chose_is_its_own(ctx: Context) -> None:
    ctx.run("import sys\nsys.stdout.reconfigure(encoding='latin-1')")
    assert ctx.run("print('é☕')").stdout == "é☕\n"


def test_a_context_survives_code_that_holds_all_descriptors(ctx: Context) -> None:
    ctx.run("keep = []\ntry:\n    while True: keep.append(open('/dev/null'))\nexcept OSError: pass")
    assert ctx.run("1").text == "1"
    ctx.run("!echo hi")
    assert ctx.run("len(keep) > 10").text == "True"
