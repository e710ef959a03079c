"""Faults that were found in snapshots, forks and hibernation, each with the right answer."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from boxes import Box, delete_snapshots, killed
from leftovers import machine_ids
from server import Api, Server


@contextmanager
def living(box: Box) -> Iterator[Box]:
    with killed(box):
        yield box


def test_a_command_whose_shell_started_another_does_not_poison_the_image(api: Api):
    """gVisor reports epoll interests of such a command again after a restore; the agent must not trust them."""
    with living(Box.create(api)) as box:
        context = box.context()
        context.run("rounds = 0")
        for number in range(1, 11):
            box.exec("sleep 0.05; echo hi")
            box.do("hibernate")
            box.do("wake")
            assert context.run("rounds += 1; rounds").text == str(number)


def test_two_promotions_of_one_tree_leave_a_winner_alive(api: Api):
    with living(Box.create(api)) as parent:
        children = [Box(api, view) for view in parent.do("fork-tree", {"count": 3})["children"]]
        with ThreadPoolExecutor(2) as threads:
            answers = list(threads.map(lambda child: child.post("promote", {"cleanup_siblings": True}), children[:2]))
        alive = [child.id for child in children if child.get().ok]
        winners = [answer.json()["winner"] for answer in answers if answer.ok]
        assert len(winners) == 1 and alive == winners
        Box(api, {"id": alive[0]}).do("promote", {"cleanup_siblings": True})
        api.delete(f"/sandboxes/{alive[0]}")


def test_a_failed_child_is_not_promoted(api: Api, server: Server):
    with living(Box.create(api)) as parent:
        good, bad = (Box(api, view) for view in parent.do("fork-tree", {"count": 2})["children"])
        bad.post("exec", {"cmd": "kill -9 1", "timeout_seconds": 5})
        deadline = time.monotonic() + 20
        while bad.status != "failed":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert bad.post("promote", {"cleanup_siblings": True}).status_code == 409
        assert good.status == "running"
        for box in (good, bad):
            api.delete(f"/sandboxes/{box.id}")


def test_children_have_the_clocks_that_their_parent_has_now(api: Api):
    with living(Box.create(api, ttl_seconds=900)) as parent:
        assert api.patch(f"/sandboxes/{parent.id}/lifecycle", {"ttl_seconds": 1800, "persistent": True}).ok
        with living(Box(api, parent.do("fork")["sandbox"])) as child:
            assert (child.view["ttl_seconds"], child.view["persistent"]) == (1800, True)


def test_two_changes_of_the_clocks_at_once_are_both_kept(api: Api, server: Server):
    with living(Box.create(api)) as box, ThreadPoolExecutor(2) as threads:
        path = f"/sandboxes/{box.id}/lifecycle"
        for number in range(20):
            changes = [{"ttl_seconds": 100 + number}, {"persistent": number % 2 == 0}]
            assert all(answer.ok for answer in threads.map(lambda change: server.api().patch(path, change), changes))
            now = api.get(path).json()
            assert (now["ttl_seconds"], now["persistent"]) == (100 + number, number % 2 == 0)


def test_a_fork_is_found_by_its_key_after_its_parent_ended(api: Api):
    parent = Box.create(api)
    body = {"count": 2, "idempotency_key": "kept"}
    first = parent.do("fork-tree", body)
    assert api.delete(f"/sandboxes/{parent.id}").ok
    again = parent.do("fork-tree", body)
    assert [child["id"] for child in again["children"]] == [child["id"] for child in first["children"]]
    assert again["tree_id"] == first["tree_id"]
    for child in first["children"]:
        api.delete(f"/sandboxes/{child['id']}")


def test_waking_counts_against_the_limits(make_server: Callable[..., Server]):
    server = make_server("--max-sandboxes", "2")
    api = server.api()
    asleep = Box.create(api)
    asleep.do("hibernate")
    others = [Box.create(api) for _ in range(2)]
    refused = asleep.post("exec", {"cmd": "true"})
    assert refused.status_code == 429 and refused.json()["code"] == "quota.sandboxes_exceeded", refused.text
    assert asleep.status == "hibernated" and len(machine_ids(server.data_dir)) == 2
    api.delete(f"/sandboxes/{others[0].id}")
    assert asleep.exec("echo awake") == "awake\n"


def test_a_refused_hibernation_cuts_nobody_off(make_server: Callable[..., Server]):
    server = make_server("--min-free-disk-mb", str(10**9))
    box = Box.create(server.api())
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(Box(server.api(), box.view).exec, "sleep 2; echo done")
        time.sleep(0.7)
        refused = box.post("hibernate")
        assert refused.status_code == 507 and int(refused.headers["Retry-After"]) > 0
        assert running.result() == "done\n"


def test_only_the_server_says_what_is_a_copy(api: Api):
    forged = {"fork_tree_id": "T", "fork_parent_id": "x", "fork_index": "0", "mine": "kept"}
    with living(Box.create(api, metadata=forged)) as one, living(Box.create(api, metadata=forged)) as other:
        assert one.view["metadata"] == {"mine": "kept"}
        assert one.post("promote", {"cleanup_siblings": True}).status_code == 400
        assert other.status == "running"


def test_the_collection_takes_no_snapshot_that_is_being_finished(api: Api, server: Server):
    with living(Box.create(api)) as box, ThreadPoolExecutor(4) as threads:
        done = threading.Event()

        def collect() -> list[int]:
            own, statuses = server.api(), []
            while not done.is_set():
                statuses.append(own.post("/snapshots/gc").status_code)
            return statuses

        collecting = [threads.submit(collect) for _ in range(3)]
        try:
            taken = [box.snapshot()["id"] for _ in range(8)]
        finally:
            done.set()
        assert {status for one in collecting for status in one.result()} == {200}
        assert all(api.get(f"/snapshots/{snapshot}").ok for snapshot in taken)
    delete_snapshots(api)
