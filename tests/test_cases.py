"""Cases seen in the field with other sandboxes and kernels. Each test is named after its case.

The bounds on time tell a hang from an answer; they say nothing about speed.
"""

import hashlib
import json
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from pandastack import Sandbox

from cells import Cell, Context, picture
from server import Api, Server

PYPLOT = "import matplotlib.pyplot as plt\n"


def execute(api: Api, sandbox: Sandbox, words: list[str], **fields) -> dict:
    answer = api.post(f"/sandboxes/{sandbox.id}/exec", {"cmd": shlex.join(words), **fields})
    return answer.json() | {"status": answer.status_code}


def quiet(cell: Cell) -> bool:
    return not (cell.results or cell.stdout or cell.stderr or cell.error)


@pytest.fixture(scope="module", autouse=True)
def long_run(server: Server) -> Iterator[Future]:
    """O-29 takes 75 s; it runs beside all the others."""
    with server.client().sandboxes.create() as sandbox, ThreadPoolExecutor(1) as threads:
        context = Context(server.api(), sandbox.id)
        yield threads.submit(context.run, "import time; time.sleep(75); 'done'", timeout=120)


# Display rules


def test_o01_semicolon(ctx: Context):
    assert quiet(ctx.run("x = 41\nx + 1;  # quiet"))
    b = ctx.run("x + 1  # left; right;")
    assert [result["text/plain"] for result in b.results] == ["42"]


def test_o02_last_value(ctx: Context):
    r1 = ctx.run("print('a')\nprint('b')\n1 + 2")
    assert (r1.stdout, r1.text) == ("a\nb\n", "3")
    for code in ("y = 5", "None", "for i in range(3):\n    i"):
        assert quiet(ctx.run(code)), code


def test_o03_update_display(ctx: Context):
    r = ctx.run("h = display('before', display_id=True)\nh.update('after')")
    assert [result["text/plain"] for result in r.results] == ["'after'"]


# Matplotlib


def test_o04_each_run_its_own_picture(ctx: Context):
    p1 = ctx.run(PYPLOT + "plt.plot([1,2]); plt.show()")
    p2 = ctx.run("print('no plot here')")
    p3 = ctx.run("plt.bar(['a','b'],[2,1]); plt.show()")
    assert [len(p.pngs) for p in (p1, p2, p3)] == [1, 0, 1]
    assert p1.pngs != p3.pngs
    picture(p1.pngs[0])
    picture(p3.pngs[0])


def test_o05_returned_figure_once(ctx: Context):
    ctx.run(PYPLOT)
    r = ctx.run("def mk():\n    f, a = plt.subplots(); a.plot([1,2]); return f\nmk()")
    s = ctx.run("g = mk()")
    assert (len(r.pngs), len(s.pngs)) == (1, 1)


def test_o06_error_bars(ctx: Context):
    r = ctx.run(PYPLOT + "plt.bar(['A','B','C'],[10,15,7], yerr=[1.5,2,.8], capsize=5); plt.title('t'); plt.show()")
    assert r.error is None and len(r.pngs) == 1


def test_o07_size(ctx: Context):
    ctx.run(PYPLOT)
    a = ctx.run("plt.figure(figsize=(4,3), dpi=50); plt.plot([1,2]); plt.show()")
    width, height = picture(a.pngs[0]).size
    assert 160 <= width <= 210 and 110 <= height <= 160, "the tight box of 200x150"


def test_o08_other_scripts(ctx: Context):
    r = ctx.run(PYPLOT + "plt.title('売上 数量 매출 ∑ é'); plt.plot([1,2]); plt.show()")
    assert (len(r.pngs), r.stderr, r.error) == (1, "", None)


def test_o09_animation(ctx: Context):
    r = ctx.run(
        PYPLOT + "from matplotlib.animation import FuncAnimation\nfrom IPython.display import HTML\n"
        "f,a=plt.subplots(); l,=a.plot([0,1])\n"
        "HTML(FuncAnimation(f, lambda i: l.set_ydata([0,i]) or (l,), frames=3).to_jshtml())",
        timeout=60,
    )
    html = r.results[0]["text/html"]
    assert "<script" in html and len(html) > 20_000 and "</script>" in html
    assert len(r.pngs) <= 1


# Tables and maths


def test_o14_wide_frame(ctx: Context):
    r = ctx.run("import pandas as pd\npd.DataFrame({f'col{i:02d}': range(3) for i in range(30)})")
    for form, shape in (("text/plain", "[3 rows x 30 columns]"), ("text/html", "3 rows × 30 columns")):
        text = r.results[0][form]
        assert "col00" in text and "col29" in text
        assert "..." not in text or shape in text


def test_o15_polars(ctx: Context):
    r = ctx.run("import polars as pl\npl.DataFrame({f'c{i}': list(range(20)) for i in range(12)})", timeout=60)
    text = r.text
    assert text.startswith("shape: (20, 12)")
    assert "�" not in text and "┌" in text and "…" in text
    assert "<table" in r.results[0]["text/html"]


def test_o16_nan_in_json(ctx: Context):
    r = ctx.run("from IPython.display import JSON, display\ndisplay(JSON({'a': float('nan'), 'b': float('inf')}))")

    def no_constant(name: str) -> None:
        raise ValueError(name)

    value = json.loads(r.results[0]["application/json"], parse_constant=no_constant)
    assert value["a"] in (None, "nan", "NaN") and value["b"] in (None, "inf", "Infinity")
    assert r.stderr == ""


# Exit, crash, memory


def test_o24_killed_interpreter(ctx: Context):
    started = time.monotonic()
    a = ctx.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", timeout=60)
    assert time.monotonic() - started < 20
    assert "SIGKILL" in a.error
    assert ctx.run("1 + 1").text == "2"


def test_o25_exit(ctx: Context):
    ctx.run("keep = 41")
    a = ctx.run("import sys; sys.exit(3)")
    assert a.error_name == "SystemExit" and a.error_value == "3" and a.body["exit_code"] == 3
    assert ctx.run("keep").text == "41"
    ctx.run("exit()")
    assert ctx.run("keep").text == "41"
    time.sleep(1)
    assert ctx.run("keep").text == "41"


def test_o26_memory(ctx: Context, sandbox: Sandbox):
    a = ctx.run("b = []\nwhile True: b.append(bytearray(50_000_000))", timeout=120)
    assert a.status == 200 and "memory" in a.error.lower()
    assert ctx.run("'ok'", timeout=20).text == "'ok'"
    assert sandbox.exec("true").exit_code == 0


# Timeouts and interrupts


def test_o27_timeout(ctx: Context):
    ctx.run("keep = 41")
    started = time.monotonic()
    a = ctx.run("print('x', flush=True)\nwhile True: pass", timeout=2)
    assert time.monotonic() - started < 20
    assert a.timed_out and a.stdout == "x\n" and a.body["state_kept"] is True
    assert ctx.run("keep", timeout=5).text == "41"


def test_o28_loop_of_shell_lines(ctx: Context):
    started = time.monotonic()
    a = ctx.run("while True:\n    !true", timeout=2)
    assert a.timed_out and time.monotonic() - started < 20
    assert ctx.run("1", timeout=10).text == "1"


# Output volume and encoding


def test_o30_endless_output(ctx: Context):
    b = ctx.run("while True: print('1234567890' * 100)", timeout=3)
    assert b.timed_out or b.body["truncated"]
    assert ctx.run("2", timeout=10).text == "2"


def test_o31_split_characters(api: Api, ctx: Context, sandbox: Sandbox):
    halves = (
        "import sys,time;b='café☕'.encode();w=sys.stdout.buffer;w.write(b[:4]);w.flush();time.sleep(.3);w.write(b[4:])"
    )
    assert execute(api, sandbox, ["python3", "-c", halves])["stdout"] == "café☕"
    many = "print('☕'*100000)"
    for text in (execute(api, sandbox, ["python3", "-c", many])["stdout"], ctx.run(many).stdout):
        assert text == "☕" * 100_000 + "\n"


def test_o32_carriage_returns(ctx: Context):
    assert ctx.run("print(1, end='\\r'); print(2)").stdout == "1\r2\n"
    bar = ctx.run("import sys\nfor i in range(3): print(f'\\r{i}', end='', file=sys.stderr, flush=True)")
    assert (bar.stdout, bar.stderr) == ("", "\r0\r1\r2")


def test_o33_lone_surrogate(ctx: Context):
    a = ctx.run("print('A\\ud800B')", timeout=10)
    assert a.status == 200
    assert ("A" in a.stdout and "B" in a.stdout) or "UnicodeEncodeError" in a.error
    assert ctx.run("print('ok')").stdout == "ok\n"


def test_o34_many_small_writes(ctx: Context):
    r = ctx.run("for i in range(200000): print(i)", timeout=60)
    assert r.body["stdout_bytes"] == 1_288_890
    assert r.stdout.startswith("0\n1\n2\n")
    assert r.body["truncated"] or r.stdout.endswith("\n199999\n")


# Errors


def test_o35_output_before_an_error(ctx: Context):
    r = ctx.run("print('found 3')\nraise ValueError('late')")
    assert r.stdout == "found 3\n"
    assert (r.error_name, r.error_value) == ("ValueError", "late")


def test_o36_colour_codes(ctx: Context):
    a = ctx.run("1/0")
    assert (a.error_name, a.error_value) == ("ZeroDivisionError", "division by zero")
    assert "\x1b" not in a.error + a.stderr
    assert ctx.run("print('\\x1b[31mred\\x1b[0m')").stdout == "\x1b[31mred\x1b[0m\n"


def test_o37_line_numbers(ctx: Context):
    r = ctx.run(
        "import os\n1/0 if os.environ['K'] == 'v' and os.getcwd() == '/tmp' else None", env={"K": "v"}, cwd="/tmp"
    )
    assert r.error_name == "ZeroDivisionError" and "line 2" in r.error.replace("---->", "line")
    assert "pandastack" not in r.error and "site-packages" not in r.error
    s = ctx.run("zz = 1\nww = 2\nif zz ==\n    pass")
    assert s.error_name == "SyntaxError" and "line 3" in s.error
    assert ctx.run("zz").error_name == "NameError"


# Contexts


def test_o38_25_contexts(api: Api, sandbox: Sandbox):
    def processes() -> int:
        return int(sandbox.exec("ls -d /proc/[0-9]* | wc -l").stdout)

    before = processes()
    for _ in range(25):
        context = Context(api, sandbox.id)
        assert context.run("'v' in globals()").text == "False"
        context.run("v = 1")
        context.close()
    assert processes() <= before + 1


def test_o39_working_directory(api: Api, sandbox: Sandbox, make_context: Callable[..., Context]):
    path = "/tmp/my dir; $(x)"
    assert execute(api, sandbox, ["mkdir", "-p", path])["exit_code"] == 0
    context = make_context(cwd=path)
    assert context.run("import os; os.getcwd()").text == repr(path)
    assert context.run("!pwd").stdout == path + "\n"
    refusal = api.post(f"/sandboxes/{sandbox.id}/repl/sessions", {"cwd": "/no/such"})
    assert 400 <= refusal.status_code < 500 and "/no/such" in refusal.json()["error"]


# Processes


def test_o42_output_of_children(ctx: Context):
    code = (
        "import os, subprocess, sys\nos.system('echo A'); os.write(1, b'B\\n'); subprocess.run(['echo','C']); "
        "subprocess.Popen(['echo','D'], stdout=sys.stdout).wait()\nprint('E')"
    )
    for _ in range(5):
        assert sorted(ctx.run(code).stdout.split()) == list("ABCDE")
    for _ in range(20):
        assert ctx.run("import os\n_ = os.system('echo last')").stdout == "last\n"


def test_o43_process_pool(ctx: Context, sandbox: Sandbox):
    a = ctx.run(
        "import multiprocessing as mp\ndef sq(x): return x*x\nwith mp.Pool(2) as p: print(p.map(sq, [1,2,3]))",
        timeout=30,
    )
    assert a.stdout == "[1, 4, 9]\n"
    b = ctx.run("with mp.get_context('spawn').Pool(2) as p: print(p.map(sq, [1,2,3]))", timeout=5)
    assert b.stdout == "[1, 4, 9]\n" or b.timed_out or b.error
    assert ctx.run("1", timeout=20).text == "1"
    assert sandbox.exec("pgrep -fc '[s]pawn_main' || true").stdout.strip() == "0"


def test_o44_children_of_a_timed_out_cell(ctx: Context, sandbox: Sandbox):
    a = ctx.run("import subprocess\nsubprocess.run(['sh','-c','sleep 301'])", timeout=1)
    assert a.timed_out
    time.sleep(1)
    assert sandbox.exec("pgrep -fc '[s]leep 301' || true").stdout == "0\n"


# Files


@pytest.mark.parametrize("size", [0, 1, 4096, 18 * 1024 - 1, 18 * 1024 + 1, 65536, 1 << 20, 30 << 20])
def test_o45_sizes(sandbox: Sandbox, size: int):
    data, path = os.urandom(size), f"/tmp/f{size}"
    sandbox.filesystem.write(path, data)
    assert sandbox.exec(f"sha256sum {path}").stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert sandbox.filesystem.read(path) == data
    sandbox.exec(f"rm {path}", check=True)


def test_o46_one_user_and_directory(ctx: Context, sandbox: Sandbox):
    home = sandbox.exec("echo ~").stdout.strip()
    sandbox.filesystem.write(f"{home}/d/a.txt", "1")
    x = sandbox.exec("cd ~/d && mv a.txt b.txt && touch c && id -un", check=True)
    assert ctx.run("import getpass; getpass.getuser()").text == repr(x.stdout.strip())
    assert ctx.run(f"open('{home}/d/b.txt').read()").text == "'1'"
    ctx.run("open('made_by_kernel.txt','w').write('k')")
    assert sandbox.exec("cat made_by_kernel.txt").stdout == "k"


def test_o48_overwriting(ctx: Context, sandbox: Sandbox):
    for i in range(10):
        sandbox.filesystem.write(f"/data/f{i}.csv", str(i))
    sandbox.filesystem.write("/data/f0.csv", "new")
    names = ctx.run("import os; ' '.join(sorted(os.listdir('/data')))").text
    assert names == repr(" ".join(f"f{i}.csv" for i in range(10)))
    assert sandbox.filesystem.read("/data/f0.csv") == b"new"


def test_o48_overwriting_is_atomic(server: Server, sandbox: Sandbox):
    contents = [b"a" * 500_000, b"b" * 500_000]
    sandbox.filesystem.write("/data/atomic", contents[0])
    stop = threading.Event()

    def write() -> None:
        writer = server.client().sandboxes.get(sandbox.id)
        while not stop.is_set():
            for content in contents:
                writer.filesystem.write("/data/atomic", content)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            seen = {sandbox.filesystem.read("/data/atomic") for _ in range(40)}
        finally:
            stop.set()
        writing.result()
    assert seen <= set(contents)


# Exec


def test_o59_exit_codes(api: Api, sandbox: Sandbox):
    codes = {
        "kill -9 $$": 137,
        "kill -15 $$": 143,
        "exit 3": 3,
    }
    for line, code in codes.items():
        assert execute(api, sandbox, ["sh", "-c", line])["exit_code"] == code, line
    missing = execute(api, sandbox, ["/no/such"])
    assert missing["exit_code"] == 127 and "/no/such" in missing["stderr"]
    denied = execute(api, sandbox, ["/etc/passwd"])
    assert denied["exit_code"] == 126 and "/etc/passwd" in denied["stderr"]
    nowhere = execute(api, sandbox, ["true"], cwd="/no")
    assert (nowhere["status"] == 400 and "/no" in nowhere["error"]) or nowhere.get("exit_code", 0) != 0


def test_o60_background_children(api: Api, sandbox: Sandbox):
    started = time.monotonic()
    a = execute(api, sandbox, ["sh", "-c", "echo hi; sleep 60 & echo done"], timeout_seconds=30)
    assert time.monotonic() - started < 20
    assert (a["exit_code"], a["stdout"]) == (0, "hi\ndone\n")
    execute(api, sandbox, ["sh", "-c", "nohup python3 -m http.server 9000 >/dev/null 2>&1 &"])
    fetch = [
        "curl",
        "-s",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
        "-o",
        "/dev/null",
        "localhost:9000",
    ]
    assert execute(api, sandbox, fetch, timeout_seconds=30)["exit_code"] == 0
    sandbox.exec("pkill -f http.server; pkill -x sleep")


def test_o61_timed_out_command(api: Api, sandbox: Sandbox):
    started = time.monotonic()
    a = execute(api, sandbox, ["sh", "-c", "echo part; sleep 77 & sleep 78"], timeout_seconds=2)
    assert time.monotonic() - started < 20
    assert (a["status"], a["code"], a["stdout"]) == (504, "command.timeout", "part\n")
    assert "timeout" in a["error"]
    assert sandbox.exec("pgrep -fc '[s]leep 7[78]' || true").stdout == "0\n"


def test_o29_no_hidden_limit(long_run: Future):
    cell = long_run.result()
    assert (cell.status, cell.text) == (200, "'done'")
