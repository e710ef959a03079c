"""O-50 to O-58: life of a sandbox, clock, entropy, names, lists. Each test is named after its case in the field."""

import ast
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pandastack import Sandbox

from cells import Context
from server import Api, Server

# Life, pause, resume


def test_o50_five_pauses(server: Server, api: Api):
    with server.client().sandboxes.create(ttl_seconds=900) as sandbox:
        context = Context(api, sandbox.id)
        home = sandbox.exec("echo ~").stdout.strip()
        for i in range(5):
            sandbox.filesystem.write(f"{home}/c{i}", str(i))
            context.run(f"v{i} = {i}")
            sandbox.pause()
            sandbox.resume()
            files = sandbox.exec("cd ~ && cat c?").stdout
            names = ", ".join(f"v{j}" for j in range(i + 1))
            assert (files, context.run(f"[{names}]").text) == ("".join(map(str, range(i + 1))), str(list(range(i + 1))))


def test_o51_lifetimes(server: Server, api: Api):
    refused = api.post("/sandboxes", {"ttl_seconds": 10**9})
    assert refused.status_code == 400 and "maximum" in refused.json()["error"]
    day = server.client().sandboxes.create(ttl_seconds=86400)
    forever = server.client().sandboxes.create(ttl_seconds=0)
    with day, forever:
        assert forever.lifecycle()["ttl_seconds"] == 0 and "expires_at" not in forever.lifecycle(), "0 is for ever"
        before = day.lifecycle()
        server.client().sandboxes.get(day.id)
        server.run("sandbox", "exec", day.id, "--", "true")
        after = day.lifecycle()
        assert (before["ttl_seconds"], after["ttl_seconds"]) == (86400, 86400)
        assert after["expires_at"] >= before["expires_at"], "a visit does not shorten it"
        assert api.get(f"/sandboxes/{day.id}").json()["ttl_seconds"] == 86400


def test_o52_a_paused_sandbox_outlives_its_ttl(server: Server, api: Api):
    with server.client().sandboxes.create(ttl_seconds=2) as sandbox:
        sandbox.pause()
        time.sleep(5)
        assert api.get(f"/sandboxes/{sandbox.id}").json()["status"] == "paused"
        sandbox.set_ttl(60)
        sandbox.resume()
        assert sandbox.exec("true").exit_code == 0


def test_o53_pause_and_resume_as_often_as_one_likes(server: Server, api: Api):
    with server.client().sandboxes.create(ttl_seconds=900) as sandbox, ThreadPoolExecutor(2) as threads:
        pause, resume = (f"/sandboxes/{sandbox.id}/{verb}" for verb in ("pause", "resume"))

        def answers(*paths: str) -> list[int]:
            return [api.request("POST", path).status_code for path in paths]

        assert answers(pause, resume, pause, resume) == [204] * 4
        assert set(answers(resume, pause, pause)) <= {200, 204, 409}
        both = list(threads.map(lambda path: server.api().request("POST", path).status_code, [resume, resume]))
        assert set(both) <= {200, 204, 409} and 204 in both
        assert sandbox.exec("echo one").stdout == "one\n"
        assert [one["status"] for one in api.get("/sandboxes").json() if one["id"] == sandbox.id] == ["running"]


# Clock, entropy, names


def test_o54_clock_after_a_restore(server: Server, api: Api):
    """Each sandbox is a restored snapshot of its template, taken long ago; the pool has frozen it since."""
    with server.client().sandboxes.create(ttl_seconds=900) as sandbox:
        context = Context(api, sandbox.id)

        def check(read: Callable[[], float]) -> None:
            before = time.time()
            inside = read()
            assert before - 0.5 <= inside <= time.time() + 0.5

        for _ in range(2):
            check(lambda: float(sandbox.exec("date +%s.%N").stdout))
            check(lambda: float(context.run("import time; time.time()").text))
            sandbox.pause()
            time.sleep(2)
            sandbox.resume()


def test_o54_clock_of_a_snapshot(server: Server, api: Api):
    """The first command and the first cell after it have the time of now."""
    with server.client().sandboxes.create(ttl_seconds=900) as source:
        context = Context(api, source.id)
        context.run("import time")
        snapshot = source.snapshot()
    time.sleep(5)
    reads = {
        "command": lambda copy: float(copy.exec("date +%s.%N").stdout),
        "cell": lambda copy: float(Context.known(api, copy.id, context.id).run("time.time()").text),
    }
    for first in reads.values():
        with server.client().sandboxes.create(from_snapshot=snapshot, ttl_seconds=900) as copy:
            for read in (first, *reads.values()):
                before = time.time()
                inside = read(copy)
                assert before - 0.5 <= inside <= time.time() + 0.5
    server.client().snapshots.delete(snapshot)


RANDOM = (
    "import os, random, secrets, ssl, uuid\nimport numpy as np\n"
    "[os.urandom(8).hex(), str(uuid.uuid4()), secrets.token_hex(8), str(random.random()), str(np.random.random()), "
    "ssl.RAND_bytes(8).hex()]"
)


def test_o55_entropy_of_two_restores(server: Server, api: Api):
    """Copies of one snapshot of the template."""
    values: list[str] = []
    for _ in range(3):
        with server.client().sandboxes.create(ttl_seconds=900) as sandbox:
            values.append(sandbox.exec("head -c16 /dev/urandom | od -An -tx1").stdout)
            values += ast.literal_eval(Context(api, sandbox.id).run(RANDOM).text)
    assert len(values) == len(set(values)) == 3 * 7


def test_o55_entropy_of_forks(server: Server, api: Api):
    """Parent and children at once. More generators in test_fork_independence.py."""
    # gVisor has no such file; where there is one, it differs too.
    kernel = "head -c16 /dev/urandom | xxd -p; cat /proc/sys/kernel/random/uuid 2>/dev/null || true"
    with server.client().sandboxes.create(ttl_seconds=900) as parent:
        context = Context(api, parent.id)
        context.run(RANDOM)
        children = [parent.fork() for _ in range(4)]

        def draw(sandbox: Sandbox) -> list[str]:
            mine = server.api()
            drawn = sandbox.exec(kernel).stdout.split()
            return drawn + ast.literal_eval(Context.known(mine, sandbox.id, context.id).run(RANDOM).text)

        with ThreadPoolExecutor(5) as threads:
            values = [value for drawn in threads.map(draw, [parent, *children]) for value in drawn]
        for child in children:
            child.kill()
    assert len(values) == len(set(values)) and len(values) in (5 * 7, 5 * 8)


def test_o56_own_names(sandbox: Sandbox, ctx: Context):
    assert ctx.run("import socket; socket.gethostbyname('localhost')").text == "'127.0.0.1'"
    assert sandbox.exec("getent hosts localhost").stdout.split()[0] in ("127.0.0.1", "::1")
    assert sandbox.exec("getent hosts $(hostname)").exit_code == 0
    assert ctx.run("socket.gethostbyname(socket.gethostname())").text.startswith("'127.")
    assert sandbox.exec("[ $(hostname) = $(cat /etc/hostname) ]").exit_code == 0


def test_o56_without_a_network_a_lookup_fails_soon(ctx: Context):
    started = time.monotonic()
    assert ctx.run("import socket; socket.getaddrinfo('example.com', 443)", timeout=60).error_name == "gaierror"
    assert ctx.run("socket.create_connection(('192.0.2.1', 80))", timeout=60).error_name == "OSError"
    assert time.monotonic() - started < 20


def test_o56_allowed_names():
    pytest.skip("skipped: waits for the network of sandboxes")


# Lists and bodies


def test_o57_paused_in_the_list_and_deleted(server: Server, api: Api):
    sandbox = server.client().sandboxes.create(ttl_seconds=900)
    sandbox.pause()
    listed = {one["id"]: one["status"] for one in api.get("/sandboxes").json()}
    assert listed[sandbox.id] == "paused"
    assert api.delete(f"/sandboxes/{sandbox.id}").status_code == 204
    assert api.get(f"/sandboxes/{sandbox.id}").status_code == 404
    assert sandbox.id not in {one["id"] for one in api.get("/sandboxes").json()}


def test_o57_pages():
    pytest.skip("skipped: waits for pages; the list is whole, which is what the published clients read")


@pytest.mark.parametrize(
    "body", [b'{"code": 5}', b'{"code": "made = 1"', b'["made = 1"]', b'{"code": "made = 1", "unknown": 1}']
)
def test_o58_a_malformed_body_runs_nothing(api: Api, ctx: Context, body: bytes):
    """More of them, for all routes, in test_bad_input.py."""
    answer = api.request(
        "POST",
        f"/sandboxes/{ctx.sandbox}/repl/sessions/{ctx.id}/run",
        data=body,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422) and isinstance(answer.json()["error"], str)
    assert ctx.run("'made' in globals()").text == "False"
