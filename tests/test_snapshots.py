"""Snapshots: memory, processes and files of one instant, and sandboxes made from them."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from boxes import Box, delete_snapshots, killed, listed, refused, snapshots
from cells import Context
from leftovers import assert_consistent, assert_nothing_left, machine_ids
from server import Api, Server
from work import Work


@pytest.fixture(scope="module")
def server(own_server: Server) -> Server:
    return own_server


@pytest.fixture
def source(api: Api) -> Iterator[Box]:
    source = Box.create(api)
    with killed(source):
        yield source


def test_a_copy_is_whole(source: Box, api: Api):
    work = Work(source)
    cells = work.python.run("0").body["cell"]
    taken = source.snapshot()
    assert source.status == "running"
    copy = Box.create(api, from_snapshot=taken["id"], template="code-interpreter")
    with killed(copy):
        assert (copy.view["boot_mode"], copy.view["from_snapshot"]) == ("snapshot", taken["id"])
        assert copy.view["status"] == "running" and copy.id != source.id
        known = {one["id"] for one in copy.get("/repl/sessions").json()}
        assert known == {work.python.id, work.node.id, work.bash.id}
        assert copy.same(work.python).run("0").body["cell"] == cells + 1, "in the middle of a notebook"
        work.check(copy)
        # Neither sees what the other does from here on.
        copy.write("/workspace/of", "copy")
        copy.same(work.python).run("x = 'of the copy'")
        assert source.read("/workspace/of") is None
    work.check(source)
    assert work.python.run("x").text == "41"


def test_a_copy_after_the_source_is_gone(api: Api):
    source = Box.create(api)
    context = source.context()
    context.run("x = 41")
    taken = source.snapshot()
    source.kill()
    first, second = (Box.create(api, from_snapshot=taken["id"]) for _ in range(2))
    with killed(first, second):
        assert [box.same(context).run("x + 1").text for box in (first, second)] == ["42", "42"]
        again = first.snapshot()
        third = Box.create(api, from_snapshot=again["id"])
        with killed(third):
            assert third.same(context).run("x + 2").text == "43", "a copy of a copy"


def test_requests_go_on_across_a_snapshot(server: Server, source: Box):
    """No line of a stream is lost, a cell and a command are answered."""
    sandbox = server.client().sandboxes.get(source.id)
    context, lines, started = source.context(), [], threading.Event()

    def line(text: str) -> None:
        lines.append(text)
        started.set()

    count = "for i in $(seq 40); do echo $i; sleep 0.1; done"
    waits = "import time\nfor i in range(30): time.sleep(0.1); print(i)\n'done'"
    with ThreadPoolExecutor(3) as threads:
        stream = threads.submit(sandbox.exec_stream, count, on_stdout=line)
        cell = threads.submit(context.run, waits, 60)
        command = threads.submit(source.exec, "sleep 3; echo answered")
        assert started.wait(20)
        for _ in range(2):
            source.snapshot()
        stream.result(), cell.result(), command.result()
    assert "".join(lines).split() == [str(i) for i in range(1, 41)]
    assert (cell.result().text, cell.result().stdout.split()) == ("'done'", [str(i) for i in range(30)])
    assert command.result() == "answered\n"


def test_a_cell_under_way_is_not_in_the_copy(source: Box, api: Api):
    """Its caller is the source's: the copy is free for the next cell, with the variables of those before."""
    context = source.context()
    context.run("x = 41")
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(context.run, "import time; open('/tmp/on', 'w'); time.sleep(4); 'done'", 60)
        source.exec("while [ ! -e /tmp/on ]; do sleep 0.05; done")
        copy = Box.create(api, from_snapshot=source.snapshot()["id"])
        with killed(copy):
            after = copy.same(context).run("x + 1", 60)
            assert (after.text, after.context_state) == ("42", "alive")
        assert cell.result().text == "'done'"


def test_names_lists_and_deletion(source: Box, api: Api):
    delete_snapshots(api)
    context = source.context()
    context.run("x = 1")
    first = source.snapshot(name="before", metadata={"step": "1"})
    second = source.snapshot()
    assert (first["name"], first["metadata"], first["kind"]) == ("before", {"step": "1"}, "snapshot")
    assert first["sandbox_id"] == source.id and first["template"] == "code-interpreter"
    assert (first["cpu"], first["memory_mb"]) == (source.view["cpu"], source.view["memory_mb"])
    assert first["size_bytes"] > 10**6 and first["paused_ms"] > 0 and first["created_at"].endswith("Z")
    assert first["mem_path"] and first["state_path"] and first["used_by"] == [] and "expires_at" not in first
    assert [one["id"] for one in snapshots(api)] == [second["id"], first["id"]], "newest first"
    assert [one["id"] for one in snapshots(api, sandbox_id=source.id)] == [second["id"], first["id"]]
    other = Box.create(api)
    assert snapshots(api, sandbox_id=other.id) == []
    other.kill()
    assert api.get(f"/snapshots/{first['id']}").json() == first
    child = Box.create(api, from_snapshot=first["id"])
    with killed(child):
        for one in (first, second):
            assert api.delete(f"/snapshots/{one['id']}").json() == {"deleted": one["id"]}
            refused(api.get(f"/snapshots/{one['id']}"), 404, code="snapshot.not_found")
            refused(api.delete(f"/snapshots/{one['id']}"), 404, code="snapshot.not_found")
            refused(api.post("/sandboxes", {"from_snapshot": one["id"]}), 404, code="snapshot.not_found")
        assert child.same(context).run("x + 1").text == "2", "what was made of it lives on"
        assert child.exec("cat /proc/1/comm") and source.exec("true") == ""
    assert snapshots(api) == []


def test_deletion_while_sandboxes_are_made_of_it(source: Box, api: Api, server: Server):
    """Either is refused or both succeed; nothing in between."""
    context = source.context()
    context.run("x = 41")
    for _ in range(3):
        taken = source.snapshot()
        with ThreadPoolExecutor(2) as threads:
            creation = threads.submit(server.api().post, "/sandboxes", {"from_snapshot": taken["id"]})
            deletion = threads.submit(server.api().delete, f"/snapshots/{taken['id']}")
            created, deleted = creation.result(), deletion.result()
        if created.status_code == 201:
            copy = Box(api, created.json())
            with killed(copy):
                assert copy.same(context).run("x + 1").text == "42"
        else:
            refused(created, 404, code="snapshot.not_found")
        if deleted.status_code != 200:
            refused(deleted, 409, code="snapshot.in_use")
            assert api.delete(f"/snapshots/{taken['id']}").status_code == 200
    assert_consistent(server)


def test_snapshots_of_paused_and_of_ended_sandboxes(source: Box, api: Api):
    context = source.context()
    context.run("x = 41")
    source.do("pause")
    taken = source.snapshot()
    assert source.status == "paused", "it stays so"
    copy = Box.create(api, from_snapshot=taken["id"])
    with killed(copy):
        assert copy.view["status"] == "running"
        assert copy.same(context).run("x + 1").text == "42"
    source.kill()
    refused(source.post("snapshots"), 404, code="sandbox.not_found")


def test_published_client(server: Server, source: Box):
    client = server.client()
    context = source.context()
    context.run("x = 41")
    identity = client.sandboxes.get(source.id).snapshot()
    assert client.snapshots.list(sandbox_id=source.id)[0]["id"] == identity
    assert client.snapshots.get(identity)["sandbox_id"] == source.id
    with client.sandboxes.create(from_snapshot=identity) as copy:
        assert copy.from_snapshot == identity
        assert Context.known(source.api, copy.id, context.id).run("x + 1").text == "42"
    client.snapshots.delete(identity)
    assert identity not in [one["id"] for one in client.snapshots.list()]


@pytest.mark.parametrize("body", [{"name": 5}, {"metadata": {"k": 5}}, {"metadata": []}, {"unknown": 1}, []], ids=repr)
def test_malformed_requests(source: Box, api: Api, body: object):
    before = snapshots(api)
    refused(source.post("snapshots", body), 400, 422)
    assert snapshots(api) == before and source.status == "running"


def test_quota(make_server: Callable[..., Server]):
    server = make_server("--max-snapshots", "1")
    api, box = server.api(), Box.create(server.api())
    assert api.get("/quotas").json()["snapshots"] == {"used": 0, "max": 1}
    taken = box.snapshot()
    assert api.get("/quotas").json()["snapshots"] == {"used": 1, "max": 1}
    assert api.get("/quotas").json()["disk_bytes"]["used"] >= taken["size_bytes"]
    refused(box.post("snapshots"), 429, code="quota.snapshots_exceeded")
    assert box.status == "running" and box.exec("echo on") == "on\n"
    assert api.delete(f"/snapshots/{taken['id']}").status_code == 200
    assert api.delete(f"/snapshots/{box.snapshot()['id']}").status_code == 200
    box.kill()
    assert_nothing_left(server)


def test_garbage_collection_removes_what_nothing_needs(server: Server, source: Box, api: Api):
    taken = source.snapshot()
    stray = server.data_dir / "snapshots/00000000-0000-7000-8000-000000000000"
    shutil.copytree(server.data_dir / "snapshots" / taken["id"], stray)
    machines = machine_ids(server.data_dir)
    would = api.post("/snapshots/gc", {"dry_run": True}).json()
    assert would["dry_run"] is True and stray.is_dir(), "nothing is done"
    assert [one["id"] for one in would["removed"]] == [stray.name] and would["removed"][0]["reason"]
    assert would["bytes"] == would["removed"][0]["bytes"] >= taken["size_bytes"]
    done = api.post("/snapshots/gc", {}).json()
    assert (done["dry_run"], done["removed"]) == (False, would["removed"])
    assert not stray.exists()
    assert json.loads(api.get(f"/snapshots/{taken['id']}").text)["id"] == taken["id"]
    assert machine_ids(server.data_dir) == machines and listed(api)[source.id] == "running"
    assert api.post("/snapshots/gc", {}).json()["removed"] == []
