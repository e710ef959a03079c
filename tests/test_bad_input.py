"""Bad input: each has a clear error or result, the sandbox and the server live on, and nothing is left behind."""

import json
import socket
import uuid
from pathlib import Path

import pytest
import requests
from pandastack import Sandbox

from cells import Context
from server import Api, Server, wait_until

MEGABYTE = 1_000_000


def refused(answer: requests.Response, *statuses: int, says: str = "") -> dict:
    """Checks the error envelope and returns it."""
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text[:500]}"
    body = answer.json()
    assert isinstance(body["error"], str) and body["error"]
    assert isinstance(body["code"], str) and "." in body["code"]
    assert body["request_id"]
    assert says.lower() in body["error"].lower()
    assert len(answer.content) < 10_000, "an error does not repeat what it was sent"
    return body


@pytest.fixture(autouse=True)
def lives_on(api: Api, sandbox: Sandbox):
    """Whatever a test does: the server makes no sandbox too many, and the sandbox still works."""
    before = {one["id"] for one in api.get("/sandboxes").json()}
    yield
    assert {one["id"] for one in api.get("/sandboxes").json()} == before
    assert sandbox.exec("echo alive", timeout_seconds=30).stdout == "alive\n"
    assert requests.get(api.base.removesuffix("/v1") + "/healthz", timeout=5).ok


# Creating


@pytest.mark.parametrize("name", ["no-such-template", "../etc", "a/b", "", "x" * 65, "nul\0"])
def test_unknown_template(api: Api, name: str):
    refused(api.post("/sandboxes", {"template": name}), 400, says="template")


@pytest.mark.parametrize("ttl", [-1, 10**9, 2**63 - 1, 2**63, 10**30, 1e30, 1.5, "abc", "60", True, [], {}])
def test_bad_ttl(api: Api, sandbox: Sandbox, ttl: object):
    """O-51, O-58"""
    refused(api.post("/sandboxes", {"ttl_seconds": ttl}), 400, 422, says="ttl")
    before = sandbox.lifecycle()["ttl_seconds"]
    refused(api.patch(f"/sandboxes/{sandbox.id}/lifecycle", {"ttl_seconds": ttl}), 400, 422, says="ttl")
    assert sandbox.lifecycle()["ttl_seconds"] == before


@pytest.mark.parametrize(
    "metadata",
    [{"k": "x" * MEGABYTE}, {"": "v"}, {"k": 5}, {"k": None}, {"k": {"a": "b"}}, [], "text", 1],
    ids=["1 MB", "empty key", "number", "null value", "nested", "list", "string", "integer"],
)
def test_bad_metadata(api: Api, metadata: object):
    refused(api.post("/sandboxes", {"metadata": metadata}), 400, 413, 422)


def test_isolation_is_refused_not_downgraded(api: Api):
    assert refused(api.post("/sandboxes", {"min_isolation": "microvm"}), 400)["code"] == "sandbox.isolation_unavailable"
    refused(api.post("/sandboxes", {"min_isolation": "wishful"}), 400, says="min_isolation")


def test_unknown_snapshot(api: Api):
    unknown = str(uuid.uuid4())
    assert refused(api.post("/sandboxes", {"from_snapshot": unknown}), 404)["code"] == "snapshot.not_found"
    refused(api.get(f"/snapshots/{unknown}"), 404)
    refused(api.delete(f"/snapshots/{unknown}"), 404)
    for identity in ("", "x", "..", "../..", "a/b", 5):
        refused(api.post("/sandboxes", {"from_snapshot": identity}), 400, 404, 422)


MALFORMED = {
    "wrong type": b'{"ttl_seconds": "abc", "code": 5, "cmd": 5}',
    "cut off": b'{"ttl_seconds": 1',
    "list": b"[]",
    "string": b'"x"',
    "null": b"null",
    "unknown field": b'{"unknown": 1}',
    "10 MB of [": b"[" * (10 * MEGABYTE),
    "no UTF-8": b'{"code": "\xff\xfe", "cmd": "\xff", "template": "\xff"}',
    "duplicate": b'{"ttl_seconds": 1, "ttl_seconds": 2, "cmd": "true", "cmd": "true", "code": "1", "code": "2"}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("route", ["create", "exec", "session", "run", "lifecycle"])
def test_malformed_json(api: Api, sandbox: Sandbox, ctx: Context, route: str, body: bytes):
    """O-58"""
    method, path = {
        "create": ("POST", "/sandboxes"),
        "exec": ("POST", f"/sandboxes/{sandbox.id}/exec"),
        "session": ("POST", f"/sandboxes/{sandbox.id}/repl/sessions"),
        "run": ("POST", f"/sandboxes/{sandbox.id}/repl/sessions/{ctx.id}/run"),
        "lifecycle": ("PATCH", f"/sandboxes/{sandbox.id}/lifecycle"),
    }[route]
    before = sandbox.lifecycle()["ttl_seconds"]
    answer = api.request(method, path, data=body, headers={"Content-Type": "application/json"})
    refused(answer, 400, 413, 422)
    assert sandbox.lifecycle()["ttl_seconds"] == before


def test_wrong_content_type(api: Api):
    headers = {"Content-Type": "application/xml"}
    refused(api.request("POST", "/sandboxes", data=b"<create/>", headers=headers), 400, 415)


def test_bytes_that_are_no_http(api: Api):
    host, port = api.base.removeprefix("http://").removesuffix("/v1").split(":")
    for garbage in (
        b"\0" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 200_000,
        b"POST /v1/sandboxes HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            try:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1000)
            except ConnectionError:
                pass


# Whose


def test_unknown_routes_and_methods(api: Api):
    refused(api.get("/no/such/route"), 404)
    refused(api.put("/sandboxes"), 404, 405)
    refused(api.get("/sandboxes/x/y/z"), 404)


@pytest.mark.parametrize("identity", [str(uuid.uuid4()), "x", "..%2f..", "%00", "A" * 5000])
def test_unknown_ids(api: Api, sandbox: Sandbox, identity: str):
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/exec", {"cmd": "true"}),
        ("POST", "/repl/sessions", {}),
        ("GET", "/fs?path=/etc/hostname", None),
        ("GET", "/lifecycle", None),
        ("POST", "/pause", None),
        ("POST", "/snapshots", None),
        ("POST", "/fork", {"count": 2}),
        ("POST", "/fork-tree", None),
        ("POST", "/promote", None),
        ("POST", "/hibernate", None),
        ("POST", "/wake", None),
        ("GET", "/events", None),
    ):
        refused(api.request(method, f"/sandboxes/{identity}{path}", json=body), 404, 400, 414)
    refused(api.run(sandbox.id, identity, "1"), 404, 400, 414)
    refused(api.delete(f"/sandboxes/{sandbox.id}/repl/sessions/{identity}"), 404, 400, 414)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer x", "Bearer pds_" + "0" * 32, "Basic cGRzOng=", "Bearer " + "p" * 5000],
)
def test_wrong_or_missing_token(server: Server, sandbox: Sandbox, header: str | None):
    api = Api(server.url, None)
    if header is not None:
        api.session.headers["Authorization"] = header
    for method, path in (
        ("GET", "/sandboxes"),
        ("POST", "/sandboxes"),
        ("DELETE", f"/sandboxes/{sandbox.id}"),
        ("GET", "/me"),
    ):
        refused(api.request(method, path), 401)


def test_token_of_another_workspace(server: Server, api: Api, sandbox: Sandbox, ctx: Context):
    made = server.run("token", "create", "--workspace", "other", "--data-dir", server.data_dir, "--json")
    other = server.api(json.loads(made.stdout)["token"])
    assert other.get("/me").json()["workspace"] == "other"
    assert other.get("/sandboxes").json() == []
    root = f"/sandboxes/{sandbox.id}"
    taken = api.post(f"{root}/snapshots").json()["id"]
    assert other.get("/snapshots").json() == {"snapshots": []}
    for answer in (
        other.get(f"/snapshots/{taken}"),
        other.delete(f"/snapshots/{taken}"),
        other.post("/sandboxes", {"from_snapshot": taken}),
    ):
        assert refused(answer, 404)["code"] == "snapshot.not_found"
    assert api.delete(f"/snapshots/{taken}").status_code == 200
    for answer in (
        other.get(root),
        other.delete(root),
        other.post(f"{root}/exec", {"cmd": "true"}),
        other.post(f"{root}/pause"),
        other.post(f"{root}/snapshots"),
        other.post(f"{root}/fork"),
        other.post(f"{root}/fork-tree"),
        other.post(f"{root}/promote"),
        other.post(f"{root}/hibernate"),
        other.post(f"{root}/wake"),
        other.get(f"{root}/events"),
        other.patch(f"{root}/lifecycle", {"ttl_seconds": 1}),
        other.get(f"{root}/fs", params={"path": "/etc/hostname"}),
        other.put(f"{root}/fs", params={"path": "/tmp/x"}, data=b"x"),
        other.post(f"{root}/repl/sessions", {}),
        other.run(sandbox.id, ctx.id, "1"),
    ):
        assert refused(answer, 404)["code"] == "sandbox.not_found"
    ours = {token["prefix"] for token in api.get("/me/tokens").json()["items"]}
    theirs = {token["prefix"] for token in other.get("/me/tokens").json()["items"]}
    assert ours.isdisjoint(theirs)
    refused(other.delete(f"/me/tokens/{ours.pop()}"), 404)


# Files


@pytest.mark.parametrize("path", ["", "relative", "../up", "./x", "~/x", "/nul\0byte", "x\0y", "/" + "a" * 5000])
def test_bad_paths(api: Api, sandbox: Sandbox, path: str):
    root = f"/sandboxes/{sandbox.id}/fs"
    refused(api.get(root, params={"path": path}), 400)
    refused(api.put(root, params={"path": path}, data=b"x"), 400)
    refused(api.delete(root, params={"path": path}), 400)
    refused(api.get(f"{root}/dir", params={"path": path or "x"}), 400)
    refused(api.get(f"{root}/stat", params={"path": path}), 400)


@pytest.mark.parametrize(
    "path",
    ["/../../../{host}", "/proc/1/root/{host}", "/tmp/../..//{host}", "//{host}", "/proc/self/root/../../{host}"],
)
def test_path_traversal(api: Api, sandbox: Sandbox, tmp_path: Path, path: str):
    """O-47: never a byte of the host."""
    marker = tmp_path / "marker"
    marker.write_text("of the host")
    inside = path.format(host=str(marker).lstrip("/"))
    root = f"/sandboxes/{sandbox.id}/fs"
    refused(api.get(root, params={"path": inside}), 400, 403, 404)
    answer = api.put(root, params={"path": inside}, data=b"of the sandbox")
    assert answer.status_code in {200, 400, 403, 404}
    assert marker.read_text() == "of the host"


def test_link_out_of_the_sandbox(api: Api, sandbox: Sandbox, tmp_path: Path):
    marker = tmp_path / "marker"
    marker.write_text("of the host")
    sandbox.exec(f"ln -sfn {marker} /tmp/to-host && ln -sfn / /tmp/to-root", check=True)
    for path in ("/tmp/to-host", f"/tmp/to-root{marker}"):
        refused(api.get(f"/sandboxes/{sandbox.id}/fs", params={"path": path}), 404)


def test_reading_a_directory_and_a_missing_file(api: Api, sandbox: Sandbox):
    root = f"/sandboxes/{sandbox.id}/fs"
    assert refused(api.get(root, params={"path": "/tmp"}), 400)["code"] == "file.is_directory"
    assert refused(api.get(root, params={"path": "/tmp/none"}), 404)["code"] == "file.not_found"
    assert refused(api.get(f"{root}/stat", params={"path": "/tmp/none"}), 404)["code"] == "file.not_found"
    assert refused(api.get(f"{root}/dir", params={"path": "/etc/hostname"}), 400)["code"] == "file.not_directory"
    refused(api.put(root, params={"path": "/tmp"}, data=b"x"), 400)
    refused(api.put(root, params={"path": "/etc/hostname/below"}, data=b"x"), 400)
    refused(api.get(root), 400, says="path")


def test_files_without_end(api: Api, sandbox: Sandbox):
    """Devices and pipes are no files: reading or writing one neither hangs nor fills the server."""
    sandbox.exec("mkfifo -m 666 /tmp/pipe || true")
    root = f"/sandboxes/{sandbox.id}/fs"
    for path in ("/dev/zero", "/tmp/pipe"):
        refused(api.get(root, params={"path": path}), 400, 413)
        refused(api.put(root, params={"path": path}, data=b"x"), 400)


def test_writing_100_megabytes(api: Api, sandbox: Sandbox):
    answer = api.put(f"/sandboxes/{sandbox.id}/fs", params={"path": "/tmp/large"}, data=bytes(100 * MEGABYTE))
    if answer.status_code == 200:
        assert answer.json()["bytes"] == 100 * MEGABYTE
        assert sandbox.filesystem.stat("/tmp/large").size == 100 * MEGABYTE
        assert api.delete(f"/sandboxes/{sandbox.id}/fs", params={"path": "/tmp/large"}).status_code == 204
    else:
        refused(answer, 413)
        assert not sandbox.filesystem.exists("/tmp/large")


# Code


@pytest.mark.parametrize(
    "code", ["", " \n\t", None, 5, [], "x" * 5 * MEGABYTE], ids=["empty", "blank", "null", "number", "list", "5 MB"]
)
def test_bad_code(api: Api, sandbox: Sandbox, ctx: Context, code: object):
    refused(api.post(f"/sandboxes/{sandbox.id}/repl/sessions/{ctx.id}/run", {"code": code}), 400, 413, 422)


@pytest.mark.parametrize("timeout", [0, -1, 10**12, "soon", 1.5])
def test_bad_timeouts(api: Api, sandbox: Sandbox, ctx: Context, timeout: object):
    run = {"code": "1", "timeout_ms": timeout}
    refused(api.post(f"/sandboxes/{sandbox.id}/repl/sessions/{ctx.id}/run", run), 400, 422)
    if timeout != 1.5:
        refused(api.post(f"/sandboxes/{sandbox.id}/exec", {"cmd": "true", "timeout_seconds": timeout}), 400, 422)


@pytest.mark.parametrize("language", ["cobol", "../python", 5])
def test_unknown_language(api: Api, sandbox: Sandbox, language: object):
    refused(api.post(f"/sandboxes/{sandbox.id}/repl/sessions", {"language": language}), 400, 422)
    refused(api.post(f"/sandboxes/{sandbox.id}/repl", {"language": language, "code": "1"}), 400, 422)


@pytest.mark.parametrize("cmd", [None, "", "  ", 5, {}, "a\0b", []], ids=repr)
def test_bad_commands(api: Api, sandbox: Sandbox, cmd: object):
    refused(api.post(f"/sandboxes/{sandbox.id}/exec", {"cmd": cmd}), 400, 422)


def test_too_many_contexts(api: Api, sandbox: Sandbox):
    made = []
    try:
        for _ in range(20):
            answer = api.post(f"/sandboxes/{sandbox.id}/repl/sessions", {})
            if answer.status_code != 201:
                break
            made.append(answer.json()["id"])
        assert refused(answer, 429)["code"] == "context.limit"
        assert len(made) == 8
    finally:
        for identity in made:
            api.delete(f"/sandboxes/{sandbox.id}/repl/sessions/{identity}")


@pytest.mark.parametrize("leave", ["import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
def test_code_that_ends_the_interpreter(ctx: Context, leave: str):
    cell = ctx.run(leave, timeout=20)
    assert cell.status == 200
    assert cell.error
    assert cell.body["context_state"] == "restarted"
    assert ctx.run("1 + 1", timeout=20).text == "2"


def test_code_that_prints_100_megabytes(server: Server, ctx: Context):
    """O-30"""
    cell = ctx.run("print('x' * 100_000_000)", timeout=60)
    assert cell.status == 200
    assert cell.body["truncated"] is True
    assert cell.body["stdout_bytes"] == 100_000_001
    assert len(cell.stdout) <= 2 * MEGABYTE
    assert ctx.run("2").text == "2"
    assert _peak_megabytes(server.process.pid) < 400


def test_code_that_prints_without_end(server: Server, ctx: Context):
    """O-30"""
    cell = ctx.run("while True: print('1234567890' * 100)", timeout=3)
    assert cell.timed_out
    assert 0 < len(cell.stdout) <= 2 * MEGABYTE
    assert ctx.run("2", timeout=10).text == "2"
    assert _peak_megabytes(server.process.pid) < 400


def _peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1000


def test_code_that_forks_without_end(server: Server, api: Api):
    with server.client().sandboxes.create() as sandbox:
        context = Context(api, sandbox.id)
        assert context.run("import os\nwhile True: os.fork()", timeout=3).error
        assert context.run("'recovered'", timeout=30).text == "'recovered'"
        wait_until(lambda: _processes(sandbox) < 20, 30, "the end of the forked processes")


def _processes(sandbox: Sandbox) -> int:
    return int(sandbox.exec("ls -d /proc/[0-9]* | wc -l", timeout_seconds=30).stdout)


def test_code_that_allocates_without_bound(ctx: Context, sandbox: Sandbox):
    """O-26"""
    cell = ctx.run("b = []\nwhile True: b.append(bytearray(50_000_000))", timeout=120)
    assert cell.status == 200
    assert "memory" in cell.error.lower()
    assert ctx.run("b = None; 'ok'", timeout=20).text == "'ok'"


def test_command_that_allocates_without_bound(sandbox: Sandbox):
    done = sandbox.exec("python3 -c 'b = []\nwhile True: b.append(bytearray(50_000_000))'", timeout_seconds=60)
    assert done.exit_code != 0


def test_code_that_ignores_interrupts(ctx: Context):
    cell = ctx.run(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass", timeout=1
    )
    assert cell.timed_out
    assert cell.stdout == "deaf\n"
    assert cell.body["context_state"] == "restarted"
    assert ctx.run("1", timeout=20).text == "1"
