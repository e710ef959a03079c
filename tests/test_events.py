"""What happened to a sandbox, for as long as it is remembered, and why it is no more."""

import os
import signal
from datetime import datetime

import pytest

from boxes import Box, refused
from leftovers import machine_ids
from server import Api, Server, wait_until


@pytest.fixture(scope="module")
def server(own_server: Server) -> Server:
    return own_server


def kinds(box: Box) -> list[str]:
    return [event["type"].removeprefix("sandbox.") for event in box.events()]


def kill_machine(server: Server) -> None:
    """The only one there is."""
    (machine,) = machine_ids(server.data_dir)
    os.kill(int((server.data_dir / "engine/vms" / machine / "pid").read_text()), signal.SIGKILL)


def test_a_whole_life(api: Api):
    box = Box.create(api)
    for verb in ("pause", "pause", "resume", "snapshots", "fork", "hibernate", "wake", "resume"):
        box.do(verb)
    expected = ["running", "paused", "resumed", "snapshotted", "forked", "hibernated", "woken"]
    assert kinds(box) == expected, "each once, and nothing for what was so already"
    times = [event["time"] for event in box.events()]
    assert all(time.endswith("Z") for time in times)
    instants = [datetime.fromisoformat(time) for time in times]
    assert instants == sorted(instants)
    assert {event["sandbox_id"] for event in box.events()} == {box.id}
    assert [event["type"] for event in box.get("/events?tail=2").json()["events"]] == [
        "sandbox.hibernated",
        "sandbox.woken",
    ]
    box.kill()
    assert kinds(box) == [*expected, "deleted"] and box.events()[-1]["payload"]["reason"] == "killed"
    for answer in (box.get(), box.post("exec", {"cmd": "true"}), box.post("wake"), api.delete(f"/sandboxes/{box.id}")):
        refused(answer, 404, code="sandbox.not_found", says="killed")
    for child in api.get("/sandboxes").json():
        Box(api, child).kill()


@pytest.mark.parametrize("tail", ["0", "-1", "x", "1.5", ""])
def test_bad_tails(api: Api, tail: str):
    box = Box.create(api)
    answer = box.get("/events", params={"tail": tail})
    assert answer.status_code in (200, 400, 422)
    if answer.ok:
        assert len(answer.json()["events"]) <= 1
    box.kill()


def test_one_that_ran_out_of_time(api: Api):
    box = Box.create(api, ttl_seconds=1)
    wait_until(lambda: box.get().status_code == 404, 30, "its end")
    refused(box.get(), 404, says="ttl")
    assert (kinds(box)[-1], box.events()[-1]["payload"]["reason"]) == ("deleted", "ttl")


def test_one_whose_machine_died(server: Server, api: Api):
    box = Box.create(api)
    kill_machine(server)
    wait_until(lambda: box.status == "failed", 30, "the failure to be seen")
    assert box.get().json()["stop_reason"] == box.get("/lifecycle").json()["stop_reason"] == "engine_failed"
    assert (kinds(box)[-1], box.events()[-1]["payload"]["reason"]) == ("failed", "engine_failed")
    for verb in ("exec", "snapshots", "fork", "hibernate", "pause"):
        refused(box.post(verb, {"cmd": "true"} if verb == "exec" else None), 409, code="sandbox.invalid_state")
    box.kill()


def test_one_whose_machine_died_while_no_server_ran(server: Server, api: Api):
    box = Box.create(api)
    server.kill9()
    kill_machine(server)
    server.start()
    assert (box.get().json()["status"], box.get().json()["stop_reason"]) == ("failed", "host_restart")
    assert (kinds(box)[-1], box.events()[-1]["payload"]["reason"]) == ("failed", "host_restart")
    refused(box.post("exec", {"cmd": "true"}), 409, code="sandbox.invalid_state")
    box.kill()
