"""The server ends in every way it can; the sandboxes go on."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from pandastack import Sandbox

from leftovers import machine_ids, traces
from server import Server, wait_until


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    server = make_server(pool_size=0)
    yield server
    server.stop()


def test_kill_9_during_a_cell(server: Server):
    sandbox = server.client().sandboxes.create(metadata={"who": "me"})
    context = sandbox.create_code_context()
    sandbox.filesystem.write("/workspace/file", "kept")
    context.run_code("import numpy as np\nkept = np.arange(5)")
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(context.run_code, "import time\ntime.sleep(2)\ndone = True")
        time.sleep(0.7)
        server.kill9()
        assert cell.exception() is not None, "the client is told that its answer is lost"
    server.start()

    again = server.client().sandboxes.get(sandbox.id)
    assert (again.status, again.metadata) == ("running", {"who": "me"})
    run = context.run_code("kept.sum()", timeout_seconds=20)
    assert (run.error, run.text) == (None, "np.int64(10)")
    assert sandbox.filesystem.read("/workspace/file") == b"kept"
    assert sandbox.exec("echo on").stdout == "on\n"
    assert sandbox.create_code_context().run_code("6 * 7").text == "42"


def test_kill_9_with_a_paused_sandbox(server: Server):
    sandbox = server.client().sandboxes.create()
    context = sandbox.create_code_context()
    context.run_code("x = 7")
    sandbox.pause()
    server.kill9()
    server.start()
    assert sandbox.refresh().status == "paused"
    sandbox.resume()
    assert context.run_code("x").text == "7"


def test_kill_9_during_creates_leaves_no_orphans(server: Server):
    kept = server.client().sandboxes.create()
    ids = machine_ids(server.data_dir)
    kept_machine = set(ids)
    known = [kept.id]

    def create(_: int) -> None:
        try:
            known.append(server.client().sandboxes.create().id)
        except Exception:  # the server is killed under it
            return

    for delay in (0.05, 0.3, 0.6):
        with ThreadPoolExecutor(4) as threads:
            storm = [threads.submit(create, number) for number in range(4)]
            until = time.monotonic() + delay
            while time.monotonic() < until:
                ids |= machine_ids(server.data_dir)
            server.kill9()
            for one in storm:
                one.result()
        ids |= machine_ids(server.data_dir)
        server.start()

    listed = {one.id for one in server.client().sandboxes.list()}
    assert set(known) <= listed, "every sandbox that was answered for is there"
    for identity in listed - {kept.id}:
        Sandbox.kill(server.client().sandboxes.get(identity))
    assert kept.exec("echo on").stdout == "on\n"
    orphans = ids - kept_machine
    wait_until(
        lambda: not traces_of(server, orphans),
        20,
        f"left behind: {traces_of(server, orphans)}",
    )
    assert machine_ids(server.data_dir) == kept_machine


def traces_of(server: Server, ids: set[str]) -> list[str]:
    found = traces(server.data_dir, ids, server.process.pid)
    everything = found.processes | found.mounts | found.cgroups | found.pipes | found.directories
    return sorted(one for one in everything if any(identity in one for identity in ids))


def test_a_sandbox_that_died_meanwhile(server: Server):
    """Its machine was killed while no server ran: the restart says so and cleans up."""
    sandbox = server.client().sandboxes.create()
    ids = machine_ids(server.data_dir)
    server.kill9()
    for process in traces(server.data_dir, ids).processes:
        pid = int(process.split()[0])
        try:
            import os

            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    server.start()
    answer = server.api().post(f"/sandboxes/{sandbox.id}/exec", {"cmd": "true"})
    assert answer.status_code in {404, 409, 502}
    assert answer.json()["error"]
    wait_until(lambda: not traces_of(server, ids), 20, "the end of its leftovers")


def test_ttl_runs_on_over_a_restart(server: Server):
    sandbox = server.client().sandboxes.create(ttl_seconds=2)
    server.kill9()
    time.sleep(2)
    server.start()
    wait_until(lambda: sandbox.id not in [one.id for one in server.client().sandboxes.list()], 10, "its end")


def test_sigterm_drains(server: Server):
    sandbox = server.client().sandboxes.create()
    context = sandbox.create_code_context()
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(context.run_code, "import time; time.sleep(1.5); 'finished'")
        time.sleep(0.5)
        assert server.terminate() == 0
        assert cell.result().text == "'finished'", "what was under way is answered"
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{server.url}/healthz", timeout=2)
    server.start()
    assert context.run_code("6 * 7").text == "42"


def test_one_server_for_one_data_directory(server: Server):
    second = server.run("serve", "--listen", "127.0.0.1:0", "--data-dir", server.data_dir, check=False, timeout=20)
    assert second.returncode != 0
    assert "another server" in second.stderr
    assert server.client().sandboxes.list() == []
