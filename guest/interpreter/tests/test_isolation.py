"""Contexts are independent of each other, of the zygote and of processes that user code forks."""

import os
import time

import pytest
from harness import Context, Zygote

GENERATORS = {
    "random": "import random\nrandom.random()",
    "numpy": "import numpy\nnumpy.random.rand()",
    "numpy generator": "import numpy\nnumpy.random.default_rng().random()",
    "uuid": "import uuid\n(uuid.uuid4(), uuid.uuid1())",
    "tempfile": "import tempfile\ntempfile.mktemp()",
    "ssl": "import ssl\nssl.RAND_bytes(8)",
    "secrets": "import secrets, os\n(secrets.token_hex(8), os.urandom(8))",
}


@pytest.mark.parametrize("code", GENERATORS.values(), ids=GENERATORS)
def test_no_two_contexts_draw_the_same(zygote: Zygote, code: str) -> None:
    contexts = [zygote.fork() for _ in range(3)]
    drawn = {context.run(code).text for context in contexts}
    for context in contexts:
        context.close()
    assert len(drawn) == 3


def test_o38_contexts_start_clean(zygote: Zygote) -> None:
    for _ in range(12):
        context = zygote.fork()
        assert context.run("'v' in globals()").text == "False"
        context.run("v = 1")
        context.close()


def test_nothing_is_left_of_the_warm_up(ctx: Context) -> None:
    assert ctx.run("[n for n in globals() if not n.startswith('_')]").text == "['In', 'Out', 'get_ipython', 'exit', 'quit', 'open']"
    assert ctx.run("import sys, threading\n[hasattr(sys, n) for n in ('last_value', 'last_exc')], threading.active_count()").text == (
        "([False, False], 1)"
    )
    assert ctx.run("__name__, sys.argv, sys.path[0]").text == "('__main__', [''], '')"
    assert ctx.run("import os\nsorted(int(f) for f in os.listdir('/proc/self/fd') if int(f) < 700)[:3]").text == "[0, 1, 2]"
    assert ctx.run("1").end["execution_count"] == 5


def test_no_descriptor_is_shared_but_the_contexts_own(zygote: Zygote, ctx: Context) -> None:
    other = zygote.fork()

    def descriptors(context: Context) -> set[str]:
        links = set()
        for fd in os.listdir(f"/proc/{context.pid}/fd"):
            links.add(os.readlink(f"/proc/{context.pid}/fd/{fd}"))
        return {link for link in links if link.startswith(("pipe:", "socket:"))}

    ctx.run("await __import__('asyncio').sleep(0)")
    other.run("await __import__('asyncio').sleep(0)")
    assert not descriptors(ctx) & descriptors(other)
    other.close()


def test_loops_of_two_contexts_do_not_meet(zygote: Zygote, ctx: Context) -> None:
    other = zygote.fork()
    code = (
        "import asyncio\ns = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)\n"
        "r, w = await asyncio.open_connection(*s.sockets[0].getsockname())\nawait r.read()"
    )
    for context in (ctx, other, ctx, other):
        assert context.run(code).text == "b''"
    other.close()


def test_the_zygote_has_one_thread(zygote: Zygote) -> None:
    assert os.listdir(f"/proc/{zygote.process.pid}/task") == [str(zygote.process.pid)]


def test_the_environment_is_as_the_agent_gave_it(ctx: Context) -> None:
    assert ctx.run("import os\n[n for n in os.environ if n.startswith(('MPL', 'PYTHONPATH', 'JE_', 'PANDASTACK'))]").text == "[]"


def test_environment_and_directory(zygote: Zygote, tmp_path: object) -> None:
    odd = f"{tmp_path}/my dir; $(x)"
    os.mkdir(odd)
    context = zygote.fork({"KEY": "ä v"}, odd)
    assert context.run("import os; os.getcwd()").text == repr(odd)
    assert context.run("!pwd; echo $KEY; echo $PWD").stdout == f"{odd}\nä v\n{odd}\n"
    context.close()
    context = zygote.fork(cwd="/no/such")
    assert context.run("import os; os.getcwd()").text == "'/'"
    context.close()


def test_environment_and_directory_of_one_cell(ctx: Context) -> None:
    assert ctx.run("import os\nos.getcwd(), os.environ['K']", env={"K": "v"}, cwd="/usr").text == "('/usr', 'v')"
    assert ctx.run("os.getcwd(), os.environ.get('K')").text == "('/tmp', None)"
    missing = ctx.run("1", cwd="/no/such")
    assert missing.error and missing.error["name"] == "FileNotFoundError"
    ctx.run("import tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)")
    assert ctx.run("os.getcwd()", cwd="/usr").text == "'/usr'"
    assert ctx.run("1").text == "1"


def test_a_forked_child_does_not_answer_for_its_parent(ctx: Context) -> None:
    run = ctx.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('who', pid == 0)\n'value'")
    assert sorted(run.stdout.splitlines()) == ["'value'", "who False", "who True"]
    assert run.text == "'value'" and sum(e["op"] == "result" for e in run.events) == 1
    assert ctx.run("1").text == "1"


def test_a_forked_childs_failure_is_its_own(ctx: Context) -> None:
    run = ctx.run(
        "import os, sys\npid = os.fork()\nif pid == 0: raise ValueError('in the child')\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert (run.text, run.error) == ("1", None) and "in the child" in run.stderr
    run = ctx.run("pid = os.fork()\nif pid == 0: sys.exit(4)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
    assert (run.text, run.error, run.stderr) == ("4", None, "")


def test_an_unfinished_line_is_not_written_twice(ctx: Context) -> None:
    assert ctx.run("import os\nprint('once', end='')\npid = os.fork()\nif pid: os.waitpid(pid, 0);").stdout == "once"


def test_a_fork_in_a_late_thread_does_not_use_the_channel(ctx: Context) -> None:
    ctx.run(
        "import os, threading\ngo = threading.Event()\ndef w():\n    go.wait()\n    p = os.fork()\n"
        "    if p == 0: print('child'); os._exit(0)\n    os.waitpid(p, 0)"
    )
    ctx.run("t = threading.Thread(target=w); t.start()")
    assert ctx.run("go.set(); t.join(); 5").text == "5"


def test_user_children_print_and_display(ctx: Context) -> None:
    run = ctx.run(
        "import multiprocessing as mp\ndef g():\n    print('in child'); display('d')\n"
        "p = mp.get_context('fork').Process(target=g); p.start(); p.join(); p.exitcode"
    )
    assert (run.stdout, run.text) == ("in child\n'd'\n", "0")


def test_the_zygote_outlives_bad_requests(zygote: Zygote) -> None:
    for message in ({"op": "fork", "context_id": "c", "cwd": "/", "env": {}}, {"op": "what"}, {}):
        zygote.control.send(message)
        assert zygote.expect("fork_failed")["op"] == "fork_failed"
    context = zygote.fork()
    assert context.run("1").text == "1"
    context.close()


def test_a_context_outlives_the_zygote() -> None:
    zygote = Zygote()
    context = zygote.fork()
    zygote.close()
    assert context.run("1").text == "1"
    context.close()


def test_exits_are_reported(zygote: Zygote) -> None:
    context = zygote.fork()
    context.channel.close()
    deadline = time.monotonic() + 30
    while not any(e["pid"] == context.pid for e in zygote.exits):
        assert time.monotonic() < deadline
        zygote.expect("exited")
    assert next(e for e in zygote.exits if e["pid"] == context.pid)["exit_code"] == 0


def test_a_fork_bomb_runs_into_a_bound(ctx: Context) -> None:
    code = """
import os, signal, time
children = []
try:
    while len(children) < 500:
        if not (pid := os.fork()):
            time.sleep(60)
        children.append(pid)
except BlockingIOError as error:
    print(error.errno)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
len(children) < 200
"""
    run = ctx.run(code)
    assert (run.stdout, run.text) == ("11\n", "True")
