"""SIGINT to the process group, again and again, as the agent sends it."""

import os
import signal
import time

import pytest
from harness import Context


@pytest.mark.parametrize(
    "code",
    [
        "print('x', flush=True)\nwhile True: pass",
        "import time\ntime.sleep(99)",
        "while True:\n    !true",
        "!sleep 99",
        "x = !sleep 99",
        "while True:\n    x = !true",
        "import subprocess\nsubprocess.run(['sleep', '99'])",
        "import asyncio\nawait asyncio.sleep(99)",
        "import asyncio\nasyncio.run(asyncio.sleep(99))",
        "import threading\nthreading.Event().wait()",
        "class A:\n    def __repr__(self):\n        while True: pass\nA()",
        "import queue\nqueue.Queue().get()",
        "while True: print('1234567890' * 100)",
        "while True: display(1)",
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as e: e.submit(time.sleep, 1.5)",
    ],
)
def test_o27_o28_an_interrupt_ends_the_cell_and_keeps_the_state(ctx: Context, code: str) -> None:
    ctx.run("keep = 41")
    run = ctx.run(code, interrupt_after=0.4)
    assert run.error and run.error["name"] == "KeyboardInterrupt" and run.end["status"] == "error"
    assert run.stderr == ""
    if code.startswith("print"):
        assert run.stdout == "x\n"
    assert ctx.run("keep").text == "41"


def test_a_shell_cell(ctx: Context) -> None:
    run = ctx.run("%%bash\nsleep 99", interrupt_after=0.4)
    assert run.error and run.end["status"] == "error"
    assert ctx.run("1").text == "1"


def test_an_interrupt_the_code_handles(ctx: Context) -> None:
    run = ctx.run("import time\ntry:\n    time.sleep(99)\nexcept KeyboardInterrupt:\n    r = 'stopped'\nr", interrupt_after=0.4)
    assert run.text == "'stopped'" or (run.error and run.error["name"] == "KeyboardInterrupt")


def test_an_interrupted_coroutine_does_not_go_on(ctx: Context) -> None:
    run = ctx.run("import asyncio\nawait asyncio.sleep(1)\nzombie = True", interrupt_after=0.3)
    assert run.error and run.error["name"] == "KeyboardInterrupt" and run.end["tasks"] == 0
    assert "Cell In[1], line 2" in run.error["traceback"]
    assert ctx.run("await asyncio.sleep(1.2)\n'zombie' in globals()").text == "False"


def test_none_between_cells(ctx: Context) -> None:
    ctx.run("keep = 41")
    for _ in range(20):
        os.killpg(ctx.pid, signal.SIGINT)
        time.sleep(0.005)
    assert ctx.run("keep").text == "41"


def test_messages_are_never_torn(ctx: Context) -> None:
    for _ in range(10):
        run = ctx.run("while True: display('x' * 100_000)", interrupt_after=0.15)
        assert run.error and run.error["name"] == "KeyboardInterrupt"
    assert ctx.run("1").text == "1"


def test_o43_pools(ctx: Context) -> None:
    fork = ctx.run(
        "import multiprocessing as mp\ndef sq(x): return x*x\nwith mp.get_context('fork').Pool(2) as p: print(p.map(sq, [1,2,3]))"
    )
    assert (fork.stdout, fork.error) == ("[1, 4, 9]\n", None)
    spawn = ctx.run("with mp.get_context('spawn').Pool(2) as p: print(p.map(sq, [1,2,3]))", interrupt_after=3)
    assert spawn.stdout == "[1, 4, 9]\n" or spawn.error
    assert ctx.run("1").text == "1"
    assert ctx.run("mp.active_children()").text == "[]"


def test_process_pool_executor(ctx: Context) -> None:
    code = "from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing as mp\ndef sq(x):\n    print('w'); return x*x\n"
    run = ctx.run(code + "with ProcessPoolExecutor(2, mp.get_context('fork')) as p: r = list(p.map(sq, [1,2]))\nr")
    assert (run.text, run.stdout) == ("[1, 4]", "w\nw\n")


def test_o44_the_foreground_child_is_gone(ctx: Context) -> None:
    run = ctx.run("import subprocess\np = subprocess.Popen(['sleep', '98'])\nprint(p.pid, flush=True)\np.wait()", interrupt_after=0.4)
    assert run.error and run.error["name"] == "KeyboardInterrupt"
    # Its exit status may be lost: the interrupt can hit between its end and Python's note of it.
    assert ctx.run("try: p.wait(10)\nexcept ChildProcessError: pass")
    assert not os.path.exists(f"/proc/{int(run.stdout)}")
