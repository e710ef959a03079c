"""Hibernated sandboxes: on disk, whole, awake with the next request."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pandastack import CodeContext

from boxes import Box, delete_snapshots, flip_a_byte, image_file, killed, listed, refused
from cells import Context
from leftovers import assert_consistent, assert_nothing_left, everything, machine_ids, stored
from server import Api, Server, wait_until
from work import Work


@pytest.fixture(scope="module")
def server(own_server: Server) -> Server:
    return own_server


@pytest.fixture
def box(api: Api) -> Iterator[Box]:
    box = Box.create(api)
    with killed(box):
        yield box


@pytest.fixture
def context(box: Box) -> Context:
    """With a variable; beside it a file."""
    context = box.context()
    context.run("x = 41")
    box.write("/workspace/file", "kept")
    return context


def hibernate(box: Box) -> None:
    assert box.do("hibernate") == {"status": "hibernated"}
    assert box.status == "hibernated"


def check(box: Box, context: Context) -> None:
    assert context.run("x + 1").text == "42"
    assert box.read("/workspace/file") == "kept"
    assert box.status == "running"


def image(server: Server) -> Path:
    (name,) = stored(server.data_dir)
    return server.data_dir / "snapshots" / name


def test_everything_comes_back(box: Box, server: Server):
    work = Work(box)
    hibernate(box)
    assert machine_ids(server.data_dir) == set(), "no machine, no process, no memory"
    assert [line for line in everything(server) if line.startswith(("processes", "cgroups", "mounts", "pipes"))] == []
    assert box.get().json()["disk_bytes"] > 200_000_000 and "memory_bytes" not in box.get().json()
    assert box.do("wake") == {"status": "running"}
    assert (box.get().json()["boot_mode"], box.get().json()["boot_ms"] > 0) == ("wake", True)
    work.check(box)
    wait_until(lambda: not stored(server.data_dir), 20, "the end of the image, which is used up")


def test_again_and_again(box: Box, context: Context):
    for verb in ("hibernate", "hibernate", "stop"):
        assert box.do(verb) == {"status": "hibernated"}, verb
    for verb in ("wake", "wake", "start"):
        assert box.do(verb) == {"status": "running"}, verb
    for number in range(3):
        context.run(f"x += {number}")
        box.do("hibernate")
    assert context.run("x").text == "44"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda box, context: box.exec("cat /workspace/file") == "kept",
        lambda box, context: context.run("x + 1").text == "42",
        lambda box, context: box.read("/workspace/file") == "kept",
        lambda box, context: box.write("/workspace/other", "x") is None,
        lambda box, context: box.context().run("1").text == "1",
        lambda box, context: box.snapshot()["kind"] == "snapshot",
        lambda box, context: box.do("resume") is None,
    ],
    ids=["exec", "cell", "read", "write", "context", "snapshot", "resume"],
)
def test_a_request_wakes_it(box: Box, context: Context, request_of: Callable[[Box, Context], bool]):
    hibernate(box)
    assert request_of(box, context)
    check(box, context)
    for one in box.api.get("/snapshots").json()["snapshots"]:
        box.api.delete(f"/snapshots/{one['id']}")


def test_a_fork_wakes_it(box: Box, context: Context):
    hibernate(box)
    (child,) = box.fork()
    with killed(child):
        check(child, child.same(context))
        check(box, context)


def test_pause_wakes_it_and_it_sleeps_from_a_pause(box: Box, context: Context):
    hibernate(box)
    box.do("pause")
    assert box.status == "paused"
    hibernate(box)
    box.do("wake")
    assert box.status == "running"
    check(box, context)


def test_published_client(server: Server, box: Box, context: Context):
    sandbox = server.client().sandboxes.get(box.id)
    sandbox.hibernate()
    assert sandbox.refresh().status == "hibernated"
    assert sandbox.exec("cat /workspace/file").stdout == "kept"
    sandbox.hibernate()
    assert CodeContext(sandbox, context.id).run_code("x + 1").text == "42"
    sandbox.hibernate()
    assert sandbox.filesystem.read("/workspace/file") == b"kept"
    sandbox.hibernate()
    lines = []
    assert sandbox.exec_stream("echo streamed", on_stdout=lines.append) == 0 and "".join(lines) == "streamed\n"
    sandbox.hibernate()
    sandbox.wake()
    assert sandbox.refresh().status == "running"


def test_looking_does_not_wake_it(box: Box, api: Api, server: Server):
    hibernate(box)
    for _ in range(2):
        assert listed(api)[box.id] == "hibernated"
        lifecycle = box.get("/lifecycle").json()
        assert (lifecycle["status"], lifecycle["active_requests"]) == ("hibernated", 0)
        assert box.events()[-1]["type"] == "sandbox.hibernated"
    assert machine_ids(server.data_dir) == set() and box.status == "hibernated"


def test_many_requests_wake_it_once(box: Box, context: Context, server: Server):
    hibernate(box)
    apis = [server.api() for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda api: Context.known(api, box.id, context.id).run("x + 1").text, apis))
    assert answers == ["42"] * 6
    assert len(machine_ids(server.data_dir)) == 1
    assert [event["type"] for event in box.events()].count("sandbox.woken") == 1
    assert_consistent(server)


def test_hibernation_during_a_cell(box: Box, context: Context, server: Server):
    """Whatever is done about it: the cell's caller and the next one hear the truth."""
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(context.run, "import time; open('/tmp/on', 'w'); time.sleep(3); 'done'", 60)
        box.exec("while [ ! -e /tmp/on ]; do sleep 0.05; done")
        answer = box.post("hibernate")
        assert answer.status_code in (200, 409), answer.text
        told = cell.result()
    assert told.text == "'done'" if answer.status_code == 409 else (told.text == "'done'" or told.error)
    after = context.run("x + 1", 60)
    assert (after.text, after.context_state) == ("42", "alive")
    assert_consistent(server)


@pytest.mark.parametrize("kill", [False, True], ids=["terminated", "killed"])
def test_over_a_restart_of_the_server(box: Box, context: Context, server: Server, kill: bool):
    hibernate(box)
    server.restart(kill=kill)
    assert box.status == "hibernated" and machine_ids(server.data_dir) == set()
    check(box, context)
    server.restart(kill=kill)
    check(box, context)


def test_deletion_leaves_nothing(server: Server):
    box = Box.create(server.api())
    hibernate(box)
    box.kill()
    refused(box.get(), 404, says="killed")
    # What other tests of this server forked from is kept for a while.
    delete_snapshots(server.api())
    assert_nothing_left(server)


@pytest.mark.parametrize("file", ["pages.img", "checkpoint.img"])
def test_a_damaged_image(box: Box, context: Context, server: Server, file: str):
    hibernate(box)
    flip_a_byte(image_file(image(server), file))
    for answer in (
        context.api.run(box.id, context.id, "x"),
        box.post("exec", {"cmd": "true"}),
        box.get("/fs", params={"path": "/workspace/file"}),
        box.post("wake"),
    ):
        refused(answer, 503, code="sandbox.wake_failed", says="auto-wake: ")
        assert box.status == "hibernated" and machine_ids(server.data_dir) == set()
    flip_a_byte(image_file(image(server), file))
    check(box, context)
    hibernate(box)
    flip_a_byte(image_file(image(server), file))
    refused(box.post("wake"), 503, code="sandbox.wake_failed")
    box.kill()
    assert_nothing_left(server)


@pytest.fixture(scope="module")
def sleepy(make_server: Callable[..., Server]) -> Iterator[Server]:
    """Hibernates what is persistent after a second, and keeps what is hibernated for three."""
    server = make_server("--hibernated-keep-seconds", "3", settings={"PANDASTACK_IDLE_HIBERNATE_SECONDS": "1"})
    yield server
    server.stop()


def test_a_persistent_sandbox_is_put_to_sleep(sleepy: Server):
    box = Box.create(sleepy.api(), persistent=True)
    with killed(box):
        context = box.context()
        context.run("x = 41")
        assert box.get("/lifecycle").json()["hibernates_at"].endswith("Z")
        wait_until(lambda: box.status == "hibernated", 30, "hibernation")
        assert box.get().json()["stop_reason"] == box.get("/lifecycle").json()["stop_reason"] == "idle"
        time.sleep(4)
        assert box.status == "hibernated", "for ever, for it is persistent"
        assert context.run("x + 1").text == "42"
        assert "stop_reason" not in box.get().json()
        types = [event["type"] for event in box.events()]
        assert types[-2:] == ["sandbox.hibernated", "sandbox.woken"]


def test_what_works_is_not_idle(sleepy: Server):
    box = Box.create(sleepy.api(), persistent=True)
    with killed(box):
        context, lines, seen = box.context(), [], []
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.1):
                seen.append(box.status)

        sandbox = sleepy.client().sandboxes.get(box.id)
        with ThreadPoolExecutor(1) as threads:
            watcher = threads.submit(watch)
            try:
                assert context.run("import time; time.sleep(4); 'done'", 60).text == "'done'"
                assert box.exec("sleep 4; echo done") == "done\n"
                assert sandbox.exec_stream("sleep 4; echo done", on_stdout=lines.append) == 0
            finally:
                stop.set()
            watcher.result()
        assert set(seen) == {"running"} and "".join(lines) == "done\n"


def test_others_stay_awake_and_what_sleeps_ends(sleepy: Server):
    awake, asleep = (Box.create(sleepy.api(), ttl_seconds=60) for _ in range(2))
    with killed(awake, asleep):
        assert "hibernates_at" not in awake.get("/lifecycle").json()
        sleepy.api().patch(f"/sandboxes/{asleep.id}/lifecycle", {"ttl_seconds": 1})
        hibernate(asleep)
        assert asleep.get("/lifecycle").json()["expires_at"].endswith("Z")
        wait_until(lambda: asleep.id not in listed(sleepy.api()), 30, "its end")
        wait_until(lambda: not stored(sleepy.data_dir), 20, "the end of its image")
        assert awake.status == "running"
