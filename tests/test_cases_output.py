"""O-30 to O-37: volume and encoding of output, errors, warnings. Each test is named after its case in the field."""

import pytest
from pandastack import Sandbox

from cells import Context, execute
from footprint import growth_kib
from server import Api, Server

MEBIBYTE = 1 << 20
# The default of `max_output_bytes`.
CAP = MEBIBYTE


# Output volume and encoding


def test_o30_endless_output(server: Server, ctx: Context):
    def flood() -> None:
        a = ctx.run("print('x' * 100_000_000)", timeout=60)
        assert a.body["truncated"] and a.body["stdout_bytes"] == 100_000_001
        assert "100000001" in a.stdout[-200:], "the text itself says that it was cut"
        assert CAP <= len(a.stdout) < CAP + 1000
        b = ctx.run("while True: print('1234567890' * 100)", timeout=3)
        assert b.timed_out or b.body["truncated"]

    assert growth_kib(server.process.pid, flood) < 32 * 1024, "in KiB; a few times the cap"
    assert ctx.run("2", timeout=10).text == "2"


def test_o30_traceback_after_too_much_output(ctx: Context):
    r = ctx.run("import sys\nprint('y' * 3_000_000, file=sys.stderr)\n1/0", timeout=60)
    assert (r.error_name, r.body["truncated"]) == ("ZeroDivisionError", True)
    assert r.stderr.endswith(r.error.rstrip("\n") + "\n") and "Traceback" in r.error


def test_o30_the_limit_can_be_chosen(ctx: Context):
    code = "print('x' * 3_000_000)"
    assert len(ctx.run(code, max_output_bytes=1000).stdout) < 2000
    whole = ctx.run(code, max_output_bytes=4 * MEBIBYTE)
    assert len(whole.stdout) == 3_000_001 and not whole.body["truncated"]


def test_o31_split_characters(api: Api, ctx: Context, sandbox: Sandbox):
    halves = (
        "import sys,time;b='café☕'.encode();w=sys.stdout.buffer;w.write(b[:4]);w.flush();time.sleep(.3);w.write(b[4:])"
    )
    assert execute(api, sandbox.id, ["python3", "-c", halves])["stdout"] == "café☕"
    assert ctx.run(halves + ";w.flush()").stdout == "café☕"
    many = "print('☕'*100000)"
    for text in (execute(api, sandbox.id, ["python3", "-c", many])["stdout"], ctx.run(many).stdout):
        assert text == "☕" * 100_000 + "\n"


def test_o32_carriage_returns(ctx: Context):
    bar = ctx.run("from tqdm import tqdm\nfor i in tqdm(range(200), mininterval=0): pass")
    assert bar.stdout == "" and "200/200" in bar.stderr
    assert bar.stderr.count("\r") > 100 and bar.stderr.count("\n") == 1
    assert ctx.run("print(1, end='\\r'); print(2)").stdout == "1\r2\n"


def test_o32_a_model_reads_the_last_state(ctx: Context):
    r = ctx.run("for i in range(200): print(f'\\rstep {i}', end='')\nprint()", max_chars=2000)
    assert "step 199" in r.body["text"] and "step 100" not in r.body["text"]


def test_o33_lone_surrogate(ctx: Context):
    a = ctx.run("print('A\\ud800B')", timeout=10)
    assert a.status == 200
    assert ("A" in a.stdout and "B" in a.stdout) or "UnicodeEncodeError" in a.error
    assert ctx.run("print('ok')").stdout == "ok\n"


def test_o34_many_small_writes(ctx: Context):
    r = ctx.run("for i in range(200000): print(i)", timeout=60, max_output_bytes=2 * MEBIBYTE)
    assert (len(r.stdout), r.body["stdout_bytes"]) == (1_288_890, 1_288_890)
    assert r.stdout.startswith("0\n1\n2\n") and r.stdout.endswith("\n199999\n")


# What code does to its streams is over with the cell, and what it wrote elsewhere is not lost.

STREAM_TRICKS = {
    "none": "import sys; sys.stdout = sys.stderr = None",
    "deleted": "import sys; del sys.stdout",
    "closed": "import sys; sys.stdout.close(); sys.stderr.close()",
    "detached": "import sys; sys.stdout.detach();",
    "descriptors closed": "import os; os.close(0); os.close(1); os.close(2)",
    "descriptors elsewhere": "import os\nn = os.open('/dev/null', os.O_RDWR)\nfor fd in range(3): os.dup2(n, fd)",
}


@pytest.mark.parametrize("trick", STREAM_TRICKS.values(), ids=STREAM_TRICKS)
def test_o31_streams_are_whole_again(ctx: Context, trick: str):
    ctx.run(trick)
    r = ctx.run("import os, sys\nprint('out'); print('err', file=sys.stderr)\nos.system('cat; echo child')", timeout=30)
    assert (r.status, r.stdout, r.stderr) == (200, "out\nchild\n", "err\n")


def test_o31_redirected_and_put_back(ctx: Context):
    r = ctx.run(
        "import os\nkept = os.dup(1); f = os.open('/tmp/o', os.O_CREAT | os.O_WRONLY); os.dup2(f, 1)\n"
        "print('file', flush=True); os.system('echo child'); os.dup2(kept, 1)\nprint(open('/tmp/o').read(), end='')"
    )
    assert r.stdout == "file\nchild\n"


def test_o31_bytes_that_are_no_text(ctx: Context):
    r = ctx.run(r"import sys; sys.stdout.buffer.write(b'\xff\xfe raw\n'); print('\0nul\0'); sys.stdout.write('tail')")
    assert r.stdout == "�� raw\n\0nul\0\ntail"


def test_o34_threads_that_print_at_once(ctx: Context):
    r = ctx.run(
        "import threading\ndef work(i):\n    for j in range(50): print(f't{i}-{j}')\n"
        "ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts];"
    )
    lines = r.stdout.split()
    assert sorted(lines) == sorted(f"t{i}-{j}" for i in range(8) for j in range(50))
    assert all(
        [line for line in lines if line.startswith(f"t{i}-")] == [f"t{i}-{j}" for j in range(50)] for i in range(8)
    )


# Errors


def test_o35_output_before_an_error(ctx: Context):
    r = ctx.run("print('found 3')\nraise ValueError('late')")
    assert r.stdout == "found 3\n"
    assert (r.error_name, r.error_value) == ("ValueError", "late")


ERRORS = {
    "cause": ("try:\n    1/0\nexcept Exception as e: raise KeyError('x') from e", "KeyError", "ZeroDivisionError"),
    "note": ("e = ValueError('n'); e.add_note('a note ☕'); raise e", "ValueError", "a note ☕"),
    "group": ("raise ExceptionGroup('g', [ValueError(1), TypeError('two')])", "ExceptionGroup", "TypeError: two"),
    "surrogate": ("raise ValueError('ü☕\\u202e\\ud800')", "ValueError", "ü☕"),
    "recursion": ("def r(n): return r(n + 1)\nr(0)", "RecursionError", "frames left out"),
    "text fails": ("class E(Exception):\n    def __str__(self): 1/0\nraise E()", "E", "raise E()"),
    "no exception": ("raise 3", "TypeError", "must derive from BaseException"),
    "base": ("raise BaseException('b')", "BaseException", "b"),
    "interrupt": ("raise KeyboardInterrupt('mine')", "KeyboardInterrupt", "mine"),
    "generator": ("def g():\n    yield 1\n    1/0\nlist(g())", "ZeroDivisionError", "in g()"),
    "task group": (
        "from asyncio import TaskGroup\nasync def b(): raise ValueError('deep')\n"
        "async with TaskGroup() as g: g.create_task(b())",
        "ExceptionGroup",
        "ValueError: deep",
    ),
    "too deep": ("import json; json.loads('[' * 100_000)", "RecursionError", "recursion"),
    "long number": ("print(10 ** 5000)", "ValueError", "4300 digits"),
    "warning": (
        "import warnings\nwith warnings.catch_warnings(action='error'): warnings.warn('w')",
        "UserWarning",
        "w",
    ),
    "hook": ("import sys; sys.excepthook = lambda *a: print('hooked')\n1/0", "ZeroDivisionError", "division by zero"),
}


@pytest.mark.parametrize(("code", "name", "says"), ERRORS.values(), ids=ERRORS)
def test_o35_kinds_of_errors(shared_ctx: Context, code: str, name: str, says: str):
    r = shared_ctx.run(code, timeout=30)
    assert (r.status, r.error_name, r.body["exit_code"]) == (200, name, 1)
    assert says in r.error and r.stderr.endswith(r.error.rstrip("\n") + "\n")
    assert "pandastack" not in r.error and "\x1b" not in r.error


def test_o35_huge_message(ctx: Context):
    r = ctx.run("print('before')\nraise ValueError('x' * 3_000_000)")
    assert (r.stdout, r.error_name) == ("before\n", "ValueError")
    assert 1000 < len(r.error_value) < 2 * MEBIBYTE


def test_o36_colour_codes(ctx: Context):
    a = ctx.run("1/0")
    assert (a.error_name, a.error_value) == ("ZeroDivisionError", "division by zero")
    assert "\x1b" not in a.error + a.stderr
    assert ctx.run("print('\\x1b[31mred\\x1b[0m')").stdout == "\x1b[31mred\x1b[0m\n"
    ctx.run("%colors Linux")
    assert "\x1b" not in ctx.run("1/0").error


def test_o37_line_numbers(ctx: Context):
    r = ctx.run(
        "import os\n1/0 if os.environ['K'] == 'v' and os.getcwd() == '/tmp' else None", env={"K": "v"}, cwd="/tmp"
    )
    assert r.error_name == "ZeroDivisionError" and "line 2" in r.error.replace("---->", "line")
    assert "pandastack" not in r.error and "site-packages" not in r.error
    s = ctx.run("zz = 1\nww = 2\nif zz ==\n    pass")
    assert s.error_name == "SyntaxError" and "line 3" in s.error
    assert ctx.run("zz").error_name == "NameError"
    assert ctx.run("import os; (os.environ.get('K'), os.getcwd())").text == "(None, '/workspace')"


def test_o37_logging_across_cells(ctx: Context):
    ctx.run("import logging, sys\nlogging.basicConfig(level=logging.INFO)\nlog = logging.getLogger('k')")
    ctx.run("log.addHandler(logging.StreamHandler(sys.stdout))")
    r = ctx.run("log.info('once')")
    assert (r.stdout, r.stderr) == ("once\n", "INFO:k:once\n")
