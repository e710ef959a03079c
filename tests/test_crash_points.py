"""The server dies at each step of each operation, and machines die: the old state or the new one, nothing else."""

import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import kill
from pathlib import Path

import pytest
import requests

from boxes import Box, delete_snapshots, listed, snapshots
from cells import Context
from leftovers import assert_consistent, assert_nothing_left, machine_ids
from server import REPO, Server

JOURNAL = REPO / "crates/sandbox/src/journal.rs"
STEPS = re.findall(r'^\s*"([a-z]+\.[a-z_]+)",$', JOURNAL.read_text(), re.MULTILINE)


class Stage:
    """A sandbox with a file and a variable, and an operation that is about to be cut short."""

    def __init__(self, server: Server):
        self.server = server
        self.box = Box.create(server.api())
        self.context: Context = self.box.context()
        self.context.run("x = 41")
        self.box.write("/workspace/file", "kept")
        self.taken = ""

    def prepare(self, operation: str) -> None:
        if operation == "wake":
            self.box.do("hibernate")
        elif operation == "resume":
            self.box.do("pause")
        elif operation == "restore":
            self.taken = self.box.snapshot()["id"]

    def perform(self, operation: str) -> requests.Response:
        """The key makes what a client repeats after a lost answer the same request."""
        key = {"idempotency_key": "once"}
        if operation == "create":
            return self.server.api().post("/sandboxes", key)
        if operation == "restore":
            return self.server.api().post("/sandboxes", {"from_snapshot": self.taken, **key})
        if operation == "delete":
            return self.server.api().delete(f"/sandboxes/{self.box.id}")
        verb = {"snapshot": "snapshots"}.get(operation, operation)
        return self.box.post(verb, {"count": 2, **key} if operation == "fork" else None)

    def check(self, operation: str) -> None:
        """What was acknowledged is there, in the old state or the new one."""
        possible = {"hibernate": {"hibernated"}, "wake": {"hibernated"}, "pause": {"paused"}, "resume": {"paused"}}
        found = listed(self.server.api()).get(self.box.id)
        assert found in ({None} if operation == "delete" else set()) | {"running"} | possible.get(operation, set())
        assert_consistent(self.server)

    def repeat(self, operation: str) -> None:
        """What was cut short is done by the same request again, and once in all."""
        again, api = self.perform(operation), self.box.api
        if operation == "delete":
            assert again.status_code in (204, 404) and listed(api) == {}
            return
        assert again.ok, again.text
        views = {"fork": lambda: again.json()["children"], "create": lambda: [again.json()]}
        views["restore"] = views["create"]
        made = [Box(api, view) for view in views.get(operation, lambda: [])()]
        assert set(listed(api)) == {self.box.id, *(box.id for box in made)}
        if operation == "snapshot":
            made = [Box.create(api, from_snapshot=one["id"]) for one in snapshots(api)]
            assert 1 <= len(made) <= 2
        self.box.do("resume")
        for box in [self.box] if operation == "create" else [self.box, *made]:
            assert box.same(self.context).run("x + 1", 60).text == "42"
            assert box.read("/workspace/file") == "kept"
        assert [box.exec("echo on") for box in made] == ["on\n"] * len(made)

    def end(self) -> None:
        for identity in listed(self.server.api()):
            assert self.server.api().delete(f"/sandboxes/{identity}").status_code == 204
        delete_snapshots(self.server.api())
        assert_nothing_left(self.server)


def operations() -> list[tuple[str, str]]:
    """Each step with the operations that reach it."""
    pairs = [(step, step.split(".")[0]) for step in STEPS]
    return pairs + [(step, "restore") for step, operation in pairs if operation == "create"]


def test_the_steps_were_found():
    assert {step.split(".")[0] for step in STEPS} >= {"create", "snapshot", "fork", "hibernate", "wake", "delete"}


@pytest.mark.parametrize(("step", "operation"), operations(), ids=lambda value: value)
def test_the_server_dies_at(make_server: Callable[..., Server], step: str, operation: str):
    server = make_server()
    stage = Stage(server)
    stage.prepare(operation)
    assert server.terminate() == 0
    server.settings = {"PANDASTACK_CRASH_AT": step}
    server.start()
    # The answer may be under way already at the last steps.
    with suppress(requests.ConnectionError):
        stage.perform(operation)
    assert server.process.wait(30) in (-signal.SIGKILL, -signal.SIGABRT), f"{step} was not reached"
    server.settings = {}
    server.start()
    stage.check(operation)
    stage.repeat(operation)
    stage.end()


def kill_machines(data_dir: Path, ids: set[str]) -> int:
    """Kills the kernels of machines, as an administrator or a lack of memory would."""
    killed = 0
    for identity in ids:
        with suppress(OSError, ValueError):
            kill(int((data_dir / "engine/vms" / identity / "pid").read_text()), signal.SIGKILL)
            killed += 1
    return killed


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("operation", ["snapshot", "fork", "hibernate", "pause"])
def test_its_machine_dies_during(make_server: Callable[..., Server], operation: str, delay: float):
    """The caller hears the truth; a sandbox that lost its machine says so and can be deleted."""
    server = make_server()
    stage = Stage(server)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(stage.perform, operation)
        time.sleep(delay)
        kill_machines(server.data_dir, machine_ids(server.data_dir))
        told = answer.result()
    assert told.ok or (told.status_code >= 400 and told.json()["error"] and told.json()["code"])
    if operation == "hibernate" and told.ok:
        assert stage.context.run("x + 1", 60).text == "42", "what was acknowledged as on disk is"
    elif stage.box.status == "failed":
        assert stage.box.get().json()["stop_reason"] == "engine_failed"
        refusal = stage.box.post("exec", {"cmd": "true"})
        assert refusal.status_code in (404, 409, 502) and refusal.json()["error"]
    assert requests.get(f"{server.url}/healthz", timeout=5).ok
    if operation == "snapshot" and told.ok:
        copy = Box.create(server.api(), from_snapshot=told.json()["id"])
        assert copy.same(stage.context).run("x + 1", 60).text == "42"
    stage.end()


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3])
def test_its_machine_dies_while_it_wakes(make_server: Callable[..., Server], delay: float):
    """The image is there until the machine answers, so nothing is lost."""
    server = make_server()
    stage = Stage(server)
    stage.prepare("wake")
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(stage.perform, "wake")
        time.sleep(delay)
        kill_machines(server.data_dir, machine_ids(server.data_dir))
        told = answer.result()
    if told.ok:
        # It was awake, and then its machine died.
        assert stage.box.status in ("running", "failed")
    else:
        assert (told.status_code, told.json()["code"]) == (503, "sandbox.wake_failed"), told.text
        assert stage.box.status == "hibernated"
        assert stage.context.run("x + 1", 60).text == "42"
    stage.end()
