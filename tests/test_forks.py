"""Forks: sandboxes that go on from one instant of a running one, each by itself."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from pandastack import CodeContext, Sandbox
from pandastack.explore import BranchOutcome, Candidate

from boxes import Box, killed, listed, refused, snapshots
from cells import Context
from leftovers import assert_consistent, assert_nothing_left
from server import Api, Server, wait_until


@pytest.fixture(scope="module")
def server(own_server: Server) -> Server:
    return own_server


@pytest.fixture
def parent(api: Api) -> Iterator[Box]:
    parent = Box.create(api, metadata={"who": "parent"})
    with killed(parent):
        yield parent


@pytest.fixture
def context(parent: Box) -> Context:
    """The parent's, with a variable; beside it a file and a process."""
    context = parent.context()
    context.run("x = 41; shared = [1, 2]")
    parent.write("/workspace/file", "of the parent")
    parent.exec("nohup sleep 4321 >/dev/null 2>&1 &")
    return context


def check_whole(box: Box, context: Context) -> None:
    assert box.same(context).run("(x + 1, shared)", 60).text == "(42, [1, 2])"
    assert box.read("/workspace/file") == "of the parent"
    assert box.exec("pgrep -fc '[s]leep 4321'") == "1\n"


def test_one_fork(parent: Box, context: Context, api: Api):
    answer = parent.do("fork")
    child = Box(api, answer["sandbox"])
    with killed(child):
        assert answer["parent_id"] == parent.id and answer["paused_ms"] > 0 and answer["at"].endswith("Z")
        assert answer["children"] == [answer["sandbox"]] and not answer.get("errors")
        assert child.view["boot_mode"] == "fork" and child.view["status"] == "running"
        assert child.view["boot_ms"] >= 1 and child.id != parent.id
        tags = {"fork_parent_id": parent.id, "forked_from": parent.id, "fork_index": "0"}
        assert child.view["metadata"].items() >= tags.items()
        assert child.get().json()["metadata"] == child.view["metadata"]
        assert child.view["ttl_seconds"] == parent.view["ttl_seconds"]
        check_whole(child, context)
        check_whole(parent, context)
        assert "sandbox.forked" in [event["type"] for event in parent.events()]


def test_four_forks_are_independent(parent: Box, context: Context):
    """O-42, of sandboxes"""
    children = parent.fork(count=4, metadata={"run": "7"}, mode="warm")
    with killed(*children):
        assert len({child.id for child in children}) == 4
        assert [child.view["metadata"]["fork_index"] for child in children] == ["0", "1", "2", "3"]
        assert {child.view["metadata"]["run"] for child in children} == {"7"}
        family = [parent, *children]
        for number, box in enumerate(family):
            check_whole(box, context)
            box.same(context).run(f"x = {number}; shared.append({number})")
            box.write("/workspace/file", str(number))
            box.exec(f"echo {number} > /tmp/{number}")
        for number, box in enumerate(family):
            assert box.same(context).run("(x, shared)").text == f"({number}, [1, 2, {number}])"
            assert box.read("/workspace/file") == str(number)
            assert box.exec("cd /tmp && ls [0-9]") == f"{number}\n"
        children[0].exec("pkill -f '[s]leep 4321'")
        assert parent.exec("pgrep -fc '[s]leep 4321'") == "1\n"


def test_fork_tree_and_promotion(parent: Box, context: Context, api: Api):
    answer = parent.do("fork-tree", {"count": 3, "metadata": {"explore": "1"}})
    children = [Box(api, child) for child in answer["children"]]
    with killed(*children):
        assert "sandbox" not in answer and answer["tree_id"] and answer["parent_id"] == parent.id
        for index, child in enumerate(children):
            tags = child.view["metadata"]
            expected = {"fork_tree_id": answer["tree_id"], "fork_tree_role": "child", "fork_parent_id": parent.id}
            assert tags.items() >= (expected | {"fork_index": str(index), "forked_from": parent.id}).items()
            assert tags["explore"] == "1" and child.view["memory_mb"] == parent.view["memory_mb"]
        winner, *losers = children
        winner.same(context).run("x = 'won'")
        losers[0].kill()
        promoted = winner.do("promote", {"cleanup_siblings": True})
        assert (promoted["winner"], promoted["tree_id"]) == (winner.id, answer["tree_id"])
        assert sorted(promoted["deleted"]) == sorted(loser.id for loser in losers) and promoted["failures"] == {}
        assert set(listed(api)) == {parent.id, winner.id}
        assert winner.do("promote", {"cleanup_siblings": True, "tree_id": answer["tree_id"]}) == promoted
        assert winner.same(context).run("x").text == "'won'"
        assert context.run("x").text == "41", "the parent is not touched"
        refused(winner.post("promote", {"cleanup_siblings": True, "tree_id": "other"}), 400, 409)
    assert len(parent.fork("fork-tree")) == 2, "of two if nothing else is said"
    for child in set(listed(api)) - {parent.id}:
        assert api.delete(f"/sandboxes/{child}").status_code == 204


def test_promotion_without_a_tree(parent: Box, api: Api):
    assert parent.do("promote") == {"winner": parent.id, "tree_id": "", "deleted": [], "failures": {}}
    (child,) = parent.fork()
    with killed(child):
        refused(child.post("promote", {"cleanup_siblings": True}), 400, says="fork-tree")
        assert child.do("promote")["deleted"] == []
        assert set(listed(api)) == {parent.id, child.id}


def test_two_clients_fork_one_parent(parent: Box, context: Context, server: Server):
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda count: Box(server.api(), parent.view).fork(count=count), (2, 3)))
    children = [child for some in both for child in some]
    with killed(*children):
        assert [len(some) for some in both] == [2, 3] and len({child.id for child in children}) == 5
        for box in (parent, *children):
            check_whole(box, context)
    assert_consistent(server)


def test_forks_of_forks_outlive_their_parents(api: Api):
    parent = Box.create(api)
    context = parent.context()
    context.run("line = ['parent']")
    with ExitStack() as kept:
        for generation in range(3):
            (child,) = parent.fork()
            kept.enter_context(killed(child))
            child.same(context).run(f"line.append({generation})")
            assert child.view["metadata"]["fork_parent_id"] == parent.id
            parent.kill()
            parent = child
        assert parent.same(context).run("line").text == "['parent', 0, 1, 2]"
        assert parent.exec("echo on") == "on\n"


def test_requests_of_the_parent_go_on(parent: Box, context: Context):
    with ThreadPoolExecutor(1) as threads:
        cell = threads.submit(context.run, "import time; open('/tmp/on', 'w'); time.sleep(4); 'done'", 60)
        parent.exec("while [ ! -e /tmp/on ]; do sleep 0.05; done")
        (child,) = parent.fork()
        with killed(child):
            assert child.same(context).run("x + 1", 60).text == "42", "the cell's caller is not the child's"
        assert cell.result().text == "'done'"


@pytest.mark.parametrize("verb", ["fork", "fork-tree"])
def test_bad_requests(api: Api, parent: Box, verb: str):
    before, kept = listed(api), snapshots(api)
    bodies: list[object] = [{"count": count} for count in (0, 17, -1, 10**30, "x", "2", 1.5, True, [], {})]
    bodies += [{"metadata": {"k": 5}}, {"metadata": {"explore_ttl": "soon"}}, {"mode": "lukewarm"}, {"unknown": 1}, []]
    for body in bodies:
        refused(parent.post(verb, body), 400, 422)
    assert listed(api) == before and snapshots(api) == kept
    assert parent.exec("echo on") == "on\n"


def test_time_to_live_of_an_experiment(parent: Box, server: Server, api: Api):
    children = parent.fork("fork-tree", count=3, metadata={"explore": "1", "explore_ttl": "3"})
    winner = children[0]
    with killed(*children):
        assert {child.view["ttl_seconds"] for child in children} == {3}
        winner.do("promote")
        assert winner.get().json()["ttl_seconds"] == parent.view["ttl_seconds"] == 900
        wait_until(lambda: set(listed(api)) == {parent.id, winner.id}, 30, "the end of the others")
        assert winner.exec("echo on") == "on\n"
        gone = children[1]
        assert "ttl" in refused(gone.post("exec", {"cmd": "true"}), 404, code="sandbox.not_found")["error"]
        last = gone.events()[-1]
        assert (last["type"], last["payload"]["reason"]) == ("sandbox.deleted", "ttl")


@pytest.mark.parametrize("by_header", [False, True], ids=["field", "header"])
def test_idempotency_keys(parent: Box, server: Server, by_header: bool):
    def fork(api: Api, key: str, verb: str = "fork", **fields):
        path, headers = f"/sandboxes/{parent.id}/{verb}", {}
        if by_header:
            headers = {"Idempotency-Key": key}
        else:
            fields["idempotency_key"] = key
        return api.request("POST", path, json=fields, headers=headers)

    key, api = f"key-{time.time_ns()}", server.api()
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(fork, server.api(), key, count=2) for _ in range(2)]
    answers = [one.result() for one in both]
    assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
    ids = [[child["id"] for child in answer.json()["children"]] for answer in answers]
    children = [Box(api, child) for child in answers[0].json()["children"]]
    with killed(*children):
        assert ids[0] == ids[1] and len(set(ids[0])) == 2
        assert set(listed(api)) == {parent.id, *ids[0]}
        server.restart(kill=True)
        again = fork(api, key, count=2)
        assert [child["id"] for child in again.json()["children"]] == ids[0], "after a restart too"
        refused(fork(api, key, count=3), 409, code="idempotency.conflict")
        refused(fork(api, key, "fork-tree", count=2), 409, code="idempotency.conflict")
        (other,) = fork(api, key + "-other", count=1).json()["children"]
        assert set(listed(api)) == {parent.id, *ids[0], other["id"]}
        Box(api, other).kill()


def test_idempotency_key_of_a_create(server: Server):
    body = {"idempotency_key": f"key-{time.time_ns()}", "metadata": {"a": "b"}}
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda _: server.api().post("/sandboxes", body), range(3)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    (identity,) = {answer.json()["id"] for answer in answers}
    refused(server.api().post("/sandboxes", body | {"metadata": {}}), 409, code="idempotency.conflict")
    assert identity in listed(server.api())
    assert server.api().delete(f"/sandboxes/{identity}").status_code == 204


def test_quota_and_the_end_of_a_capture(make_server: Callable[..., Server]):
    server = make_server("--max-sandboxes", "3", "--fork-keep-seconds", "2")
    api, parent = server.api(), Box.create(server.api())
    context = parent.context()
    refused(parent.post("fork", {"count": 3}), 429, code="quota.sandboxes_exceeded")
    assert set(listed(api)) == {parent.id}, "all or none"
    children = parent.fork(count=2)
    (capture,) = snapshots(api)
    assert capture["kind"] == "fork" and capture["sandbox_id"] == parent.id and capture["expires_at"]
    assert api.get("/quotas").json()["running"] == {"used": 3, "max": 3}
    assert api.get("/quotas").json()["snapshots"]["used"] == 0, "a fork is no snapshot of the workspace"
    wait_until(lambda: snapshots(api) == [], 30, "the end of the capture")
    for box in (parent, *children):
        assert box.same(context).run("6 * 7").text == "42"
        box.kill()
    assert_nothing_left(server)


def test_explore_of_the_published_client(server: Server, parent: Box, context: Context):
    """Best of four: each candidate computes in its own copy of the context; the best is promoted."""
    sandbox = server.client().sandboxes.get(parent.id)
    meeting = threading.Barrier(4)

    def candidate(guess: int) -> Candidate:
        def body(copy: Sandbox) -> int:
            meeting.wait(60)
            code = CodeContext(copy, context.id)
            run = code.run_code(f"guess = {guess}; error = abs(x - guess)\nerror", timeout_seconds=60)
            copy.filesystem.write("/workspace/file", f"guess {guess}")
            return int(run.text)

        return Candidate.call(f"guess {guess}", body)

    def score(_: Sandbox, outcome: BranchOutcome) -> float:
        return -outcome.value

    found = sandbox.explore([candidate(guess) for guess in (7, 40, 90, 12)], score_fn=score, ttl_seconds=300)
    with found.winner as winner:
        assert found.winner_outcome.label == "guess 40" and found.errors == [] and found.reap_failures == {}
        assert [outcome.value for outcome in found.outcomes] == [1, 29, 34, 49]
        assert len(found.reaped) == 3 and found.tree_id
        assert set(listed(server.api())) == {parent.id, winner.id}
        assert CodeContext(winner, context.id).run_code("(x, guess, error)").text == "(41, 40, 1)"
        assert winner.filesystem.read("/workspace/file") == b"guess 40"
        assert winner.lifecycle()["ttl_seconds"] == 900
    assert context.run("'guess' in globals()").text == "False"


def test_explore_with_commands(server: Server, parent: Box, api: Api):
    sandbox = server.client().sandboxes.get(parent.id)
    found = sandbox.explore(["echo 1 > /work/made", "exit 3", "sleep 1; echo 2 > /work/made", "false"])
    with found.winner as winner:
        assert found.winner_outcome.exit_code == 0 and found.winner_outcome.files_changed == ["/work/made"]
        assert winner.exec("cat /work/made").stdout in ("1\n", "2\n")
        assert set(listed(api)) == {parent.id, winner.id}
