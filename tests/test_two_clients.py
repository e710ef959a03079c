"""Two clients, or many threads, on one sandbox."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pandastack import CodeContext, Sandbox

from cells import Context
from server import Server


def test_a_second_client_continues_the_context(server: Server, sandbox: Sandbox):
    """O-41"""
    first = sandbox.create_code_context()
    first.run_code("x = 7; import math")
    same = CodeContext(server.client().sandboxes.get(sandbox.id), first.id)
    assert same.run_code("(x, math.pi > 3)").text == "(7, True)"
    same.run_code("x = 8")
    assert first.run_code("x").text == "8"
    first.close()


def test_contexts_run_side_by_side(make_context: Callable[..., Context]):
    one, other = make_context(), make_context()
    meeting = (
        "import os, time\nopen('/tmp/meet-{mine}', 'w').close()\n"
        "while not os.path.exists('/tmp/meet-{yours}'): time.sleep(.01)"
    )
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(one.run, meeting.format(mine=1, yours=2), timeout=20)
        second = threads.submit(other.run, meeting.format(mine=2, yours=1), timeout=20)
        assert (first.result().status, second.result().status) == (200, 200)


def test_exec_and_files_while_a_cell_runs(ctx: Context, sandbox: Sandbox):
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(
            ctx.run, "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(.02)\n'went'", timeout=20
        )
        assert sandbox.exec("echo meanwhile").stdout == "meanwhile\n"
        sandbox.filesystem.write("/tmp/go", "")
        assert cell.result().text == "'went'"


def test_one_client_from_many_threads(server: Server):
    """O-66, the part of the synchronous client"""
    client, lock, answers = server.client(), threading.Lock(), {}
    with client.sandboxes.create() as sandbox:

        def job(number: int) -> None:
            answer = sandbox.run_code(f"print({number})").stdout
            with lock:
                answers[number] = answer

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(job, range(8)))
    assert answers == {number: f"{number}\n" for number in range(8)}
