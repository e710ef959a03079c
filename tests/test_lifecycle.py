"""What sandboxes leave behind when they end: nothing."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pandastack import Sandbox

from leftovers import machine_ids, traces
from server import Api, Server, wait_until


def assert_gone(server: Server, ids: set[str], seconds: float) -> None:
    wait_until(
        lambda: not traces(server.data_dir, ids, server.process.pid),
        seconds,
        f"left behind: {traces(server.data_dir, ids, server.process.pid)}",
    )


def test_ttl_ends_everything(make_server: Callable[..., Server]):
    server = make_server()
    sandbox = server.client().sandboxes.create(ttl_seconds=2)
    sandbox.exec("sleep 1000 >/dev/null 2>&1 & echo x > /workspace/file", check=True)
    ids = machine_ids(server.data_dir)
    assert len(ids) == 1
    found = traces(server.data_dir, ids, server.process.pid)
    assert found.processes and found.cgroups and found.directories, "the probe sees a running sandbox"
    time.sleep(2)
    assert_gone(server, ids, 6)
    assert server.client().sandboxes.list() == []


def test_requests_keep_a_sandbox_alive(server: Server):
    with server.client().sandboxes.create(ttl_seconds=2) as sandbox:
        for _ in range(5):
            time.sleep(0.8)
            assert sandbox.exec("echo busy").stdout == "busy\n"
        assert sandbox.exec("sleep 3; echo long").stdout == "long\n", "a request under way counts"


def test_50_creates_and_kills_leave_nothing(make_server: Callable[..., Server]):
    server = make_server()
    client, ids = server.client(), set()

    def create_and_kill(number: int) -> None:
        sandbox = client.sandboxes.create()
        ids.update(machine_ids(server.data_dir))
        if number % 5 == 0:
            assert sandbox.exec("echo $((6 * 7))").stdout == "42\n"
        sandbox.kill()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(create_and_kill, range(50)))
    assert len(ids) >= 50
    assert_gone(server, ids, 10)
    children = [line for line in _children(server.process.pid) if "Z" in line]
    assert children == [], "no zombie is left either"


def _children(pid: int) -> list[str]:
    from pathlib import Path

    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(after_name[1]) == pid:
            states.append(f"{stat.parent.name} {after_name[0]}")
    return states


def test_a_sandbox_whose_agent_was_stopped_is_given_up(server: Server, api: Api):
    """Code inside is root and may stop process 1: the sandbox must not look alive for ever."""
    sandbox = server.client().sandboxes.create(ttl_seconds=600)
    api.post(f"/sandboxes/{sandbox.id}/exec", {"cmd": "(sleep 0.2; kill -STOP 1) >/dev/null 2>&1 &"})
    wait_until(
        lambda: api.get(f"/sandboxes/{sandbox.id}").json()["status"] == "failed", 180, "the sandbox to be given up"
    )
    assert api.get(f"/sandboxes/{sandbox.id}").json()["stop_reason"] == "engine_failed"
    assert api.post(f"/sandboxes/{sandbox.id}/exec", {"cmd": "true"}).status_code == 409
    sandbox.kill()


def test_kill_during_a_cell(server: Server):
    sandbox = server.client().sandboxes.create()
    context = sandbox.create_code_context()
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(server.api().run, sandbox.id, context.id, "import time; time.sleep(30)", 60)
        time.sleep(0.5)
        started = time.monotonic()
        sandbox.kill()
        answer = cell.result()
    assert time.monotonic() - started < 10
    assert answer.status_code in {404, 409, 500, 502}
    assert answer.json()["error"]


def test_pausing_and_resuming_twice(server: Server):
    """O-53"""
    api = server.api()
    with server.client().sandboxes.create() as sandbox:
        root = f"/sandboxes/{sandbox.id}"
        for step in ("pause", "resume", "pause", "resume"):
            assert api.post(f"{root}/{step}").status_code == 204, step
        for step in ("resume", "pause", "pause"):
            assert api.post(f"{root}/{step}").status_code in {204, 409}, step
        with ThreadPoolExecutor(2) as threads:
            statuses = [one.status_code for one in threads.map(lambda _: api.post(f"{root}/resume"), range(2))]
        assert set(statuses) <= {204, 409} and 204 in statuses
        assert sandbox.exec("echo up").stdout == "up\n"


def test_state_survives_many_pauses(server: Server):
    """O-50"""
    with server.client().sandboxes.create() as sandbox, sandbox.create_code_context() as context:
        for cycle in range(5):
            sandbox.filesystem.write(f"/workspace/c{cycle}", str(cycle))
            context.run_code(f"v{cycle} = {cycle}")
            sandbox.pause()
            sandbox.resume()
            names = {entry.name for entry in sandbox.filesystem.listdir("/workspace")}
            assert {f"c{number}" for number in range(cycle + 1)} <= names
            variables = "[" + ", ".join(f"v{number}" for number in range(cycle + 1)) + "]"
            assert context.run_code(variables).text == str(list(range(cycle + 1)))


def test_paused_sandboxes_are_listed_and_can_be_deleted(server: Server):
    """O-57"""
    api, sandbox = server.api(), server.client().sandboxes.create()
    sandbox.pause()
    listed = {one["id"]: one["status"] for one in api.get("/sandboxes").json()}
    assert listed[sandbox.id] == "paused"
    refusal = api.post(f"/sandboxes/{sandbox.id}/exec", {"cmd": "true"})
    assert refusal.status_code == 409, "a paused sandbox says so"
    assert api.delete(f"/sandboxes/{sandbox.id}").status_code == 204
    assert api.get(f"/sandboxes/{sandbox.id}").status_code == 404


def test_no_network_device(sandbox: Sandbox):
    """Nothing but the loopback device, which works."""
    assert sandbox.exec("ls /sys/class/net 2>/dev/null || ip -o link | cut -d: -f2").stdout.split() in (["lo"], [])
    assert sandbox.exec("getent hosts localhost").exit_code == 0
    listener = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname()); print('ok')"
    )
    assert sandbox.run_code(listener).stdout == "ok\n"
    outside = sandbox.exec("timeout 5 python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 3)\"")
    assert outside.exit_code != 0
