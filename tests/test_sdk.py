"""The published Python SDK against a real gVisor sandbox."""

import base64
import uuid
from pathlib import Path

import pytest
from pandastack import (
    AuthError,
    BadRequestError,
    Client,
    CodeContext,
    CommandFailed,
    NotFoundError,
    Sandbox,
    SandboxTimeout,
    set_default_client,
)

from cells import picture
from server import Server, wait_until


@pytest.fixture(scope="module")
def client(server: Server) -> Client:
    return server.client()


@pytest.fixture
def context(sandbox: Sandbox):
    with sandbox.create_code_context() as context:
        yield context


def test_create_with_the_defaults(client: Client):
    with client.sandboxes.create() as sandbox:
        assert uuid.UUID(sandbox.id)
        assert sandbox.template == "code-interpreter"
        assert sandbox.status == "running"
        assert (sandbox.cpu, sandbox.memory_mb) == (2, 2048)
        assert sandbox.boot_ms > 0
        assert sandbox.boot_mode in {"warm", "snapshot"}
        assert sandbox.created_at.endswith("Z")
        assert sandbox.metadata == {}
    with pytest.raises(NotFoundError):
        client.sandboxes.get(sandbox.id)


def test_create_through_the_configuration_file(server: Server, monkeypatch: pytest.MonkeyPatch):
    """SDK and server on one machine need no configuration."""
    monkeypatch.setenv("HOME", str(server.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(server.home / ".config"))
    for name in ("PANDASTACK_API", "PANDASTACK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    set_default_client(None)
    try:
        with Sandbox.create() as sandbox:
            assert sandbox.exec("echo hello").stdout == "hello\n"
    finally:
        set_default_client(None)


def test_create_with_every_argument(client: Client):
    sandbox = client.sandboxes.create(
        template="ubuntu-24.04", metadata={"who": "größe"}, ttl_seconds=120, persistent=True
    )
    try:
        assert sandbox.metadata == {"who": "größe"}
        assert sandbox.persistent
        assert sandbox.lifecycle()["ttl_seconds"] == 120
        assert client.sandboxes.get(sandbox.id).metadata == {"who": "größe"}
        assert sandbox.exec("python3 -c 'print(6 * 7)'", check=True).stdout == "42\n"
    finally:
        sandbox.kill()


def test_list_and_get(client: Client, sandbox: Sandbox):
    newer = client.sandboxes.create()
    try:
        ids = [one.id for one in client.sandboxes.list()]
        assert ids.index(newer.id) < ids.index(sandbox.id), "newest first"
        same = client.sandboxes.get(newer.id)
        assert (same.id, same.template, same.created_at) == (newer.id, newer.template, newer.created_at)
        assert newer.refresh().status == "running"
    finally:
        newer.kill()
    assert newer.id not in [one.id for one in client.sandboxes.list()]


def test_kill_twice(client: Client):
    sandbox = client.sandboxes.create()
    sandbox.kill()
    with pytest.raises(NotFoundError):
        sandbox.kill()
    with pytest.raises(NotFoundError):
        sandbox.exec("true")


def test_cell_text(context: CodeContext):
    context.run_code("x = 41")
    run = context.run_code("x + 1")
    assert (run.text, run.stdout, run.stderr, run.error, run.exit_code) == ("42", "", "", None, 0)


def test_cell_stdout_and_stderr(context: CodeContext):
    run = context.run_code("import sys\nprint('grüße ☕')\nprint('careful', file=sys.stderr)")
    assert run.stdout == "grüße ☕\n"
    assert run.stderr == "careful\n"
    assert run.logs == {"stdout": run.stdout, "stderr": run.stderr}
    assert run.results == []
    assert run.duration_ms >= 0


def test_cell_error(context: CodeContext):
    run = context.run_code("print('before')\n1 / 0")
    assert run.exit_code == 1
    assert run.stdout == "before\n"
    assert "ZeroDivisionError: division by zero" in run.error
    assert "ZeroDivisionError" in run.stderr
    assert context.run_code("'still here'").text == "'still here'"


def test_cell_chart(context: CodeContext):
    run = context.run_code("import matplotlib.pyplot as plt; plt.plot([1, 2, 3]); plt.show()")
    assert run.error is None
    assert run.results[0].png == run.png
    assert picture(base64.b64decode(run.png)).width > 100


def test_cell_chart_as_last_expression(context: CodeContext):
    run = context.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])")
    assert run.text.startswith("[<matplotlib.lines.Line2D")
    assert [result.png is not None for result in run.results] == [False, True]


def test_cell_table(context: CodeContext):
    run = context.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
    assert "<table" in run.results[0].html
    assert run.results[0].text.split() == ["a", "b", "0", "1", "x", "1", "2", "y"]


def test_cell_timeout_keeps_the_context(context: CodeContext):
    context.run_code("kept = 1")
    with pytest.raises(SandboxTimeout):
        context.run_code("while True: pass", timeout_seconds=1)
    assert context.run_code("kept").text == "1"


def test_contexts_are_apart(sandbox: Sandbox):
    with sandbox.create_code_context() as one, sandbox.create_code_context("py") as other:
        one.run_code("mine = 1")
        assert "NameError" in other.run_code("mine").error
        assert one.run_code("mine").text == "1"


def test_closed_context(sandbox: Sandbox):
    context = sandbox.create_code_context()
    context.close()
    with pytest.raises(NotFoundError):
        context.run_code("1")


def test_exec(sandbox: Sandbox):
    done = sandbox.exec("echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 7)
    assert sandbox.commands.run("echo $((6 * 7))").stdout == "42\n"


def test_exec_check(sandbox: Sandbox):
    assert sandbox.exec("true", check=True).exit_code == 0
    with pytest.raises(CommandFailed) as failure:
        sandbox.exec("echo no >&2; exit 3", check=True)
    assert (failure.value.exit_code, failure.value.stderr) == (3, "no\n")


def test_exec_timeout(sandbox: Sandbox):
    with pytest.raises(SandboxTimeout):
        sandbox.exec("sleep 60", timeout_seconds=1)
    assert sandbox.exec("pgrep -x sleep || echo none").stdout == "none\n"


@pytest.mark.parametrize("language", ["python", "bash"])
def test_run_code_without_a_context(sandbox: Sandbox, language: str):
    code = {"python": "print('it\\'s ' + 'fine')", "bash": 'echo "it\'s fine"'}[language]
    assert sandbox.run_code(code, language=language).stdout == "it's fine\n"


def test_exec_stream(sandbox: Sandbox):
    out, err = [], []
    code = sandbox.exec_stream("printf 'caf\\303\\251 ☕\\n'; echo e >&2; exit 5", out.append, err.append)
    assert (code, "".join(out), "".join(err)) == (5, "café ☕\n", "e\n")
    with pytest.raises(SandboxTimeout):
        sandbox.exec_stream("sleep 60", timeout_seconds=1)


@pytest.mark.parametrize("content", [b"", b"text\n", bytes(range(256)) * 4096], ids=["empty", "text", "1 MB"])
def test_write_and_read(sandbox: Sandbox, content: bytes):
    path = f"/tmp/new-{uuid.uuid4()}/deep/file"
    sandbox.filesystem.write(path, content)
    assert sandbox.filesystem.read(path) == content
    info = sandbox.filesystem.stat(path)
    assert (info.name, info.path, info.is_dir, info.size) == ("file", path, False, len(content))
    assert info.mtime > 1_600_000_000


def test_upload_and_download(sandbox: Sandbox, tmp_path: Path):
    (tmp_path / "up").write_bytes(bytes(range(256)))
    sandbox.filesystem.upload(tmp_path / "up", "/workspace/up.bin")
    assert sandbox.exec("sha256sum < /workspace/up.bin").exit_code == 0
    sandbox.filesystem.download("/workspace/up.bin", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == bytes(range(256))


def test_directories(sandbox: Sandbox):
    sandbox.exec("mkdir -p /tmp/tree/a/b /tmp/tree/empty && ln -s a /tmp/tree/link", check=True)
    sandbox.filesystem.write("/tmp/tree/a/b/c.txt", "c")
    entries = {entry.name: entry.is_dir for entry in sandbox.filesystem.listdir("/tmp/tree")}
    assert entries == {"a": True, "empty": True, "link": False}, "a link to a directory is no directory"
    assert sandbox.filesystem.listdir("/tmp/tree/empty") == []
    walked = {path: [file.name for file in files] for path, _, files in sandbox.filesystem.walk("/tmp/tree")}
    assert walked == {
        "/tmp/tree": ["link"],
        "/tmp/tree/a": [],
        "/tmp/tree/a/b": ["c.txt"],
        "/tmp/tree/empty": [],
    }


def test_missing_file(sandbox: Sandbox):
    files = sandbox.filesystem
    assert not files.exists("/tmp/none")
    assert files.exists("/tmp")
    for look in (files.read, files.stat, files.listdir):
        with pytest.raises(NotFoundError):
            look("/tmp/none")


def test_pause_and_resume(client: Client):
    with client.sandboxes.create() as sandbox, sandbox.create_code_context() as context:
        context.run_code("x = 7")
        sandbox.pause()
        assert sandbox.refresh().status == "paused"
        assert sandbox.id in [one.id for one in client.sandboxes.list()]
        sandbox.resume()
        assert sandbox.refresh().status == "running"
        assert context.run_code("x").text == "7"


def test_lifecycle(client: Client):
    with client.sandboxes.create(ttl_seconds=100) as sandbox:
        lifecycle = sandbox.lifecycle()
        assert lifecycle["ttl_seconds"] == 100
        assert lifecycle["persistent"] is False
        assert lifecycle["idle_seconds"] >= 0
        assert sandbox.set_ttl(200)["ttl_seconds"] == 200
        assert sandbox.set_persistent(True)["persistent"] is True
        assert sandbox.lifecycle()["ttl_seconds"] == 200


def test_ttl(client: Client):
    sandbox = client.sandboxes.create(ttl_seconds=1)
    wait_until(lambda: sandbox.id not in [one.id for one in client.sandboxes.list()], 10, "its end")


def test_templates_and_identity(client: Client):
    names = [template.name for template in client.templates.list()]
    assert {"code-interpreter", "ubuntu-24.04"} <= set(names)
    assert client.templates.get("code-interpreter")
    with pytest.raises(NotFoundError):
        client.templates.get("no-such-template")
    assert client.me()["workspace"] == "default"


def test_refusals(client: Client, server: Server):
    with pytest.raises(AuthError):
        Client(api_url=server.url, api_key="pds_" + "0" * 32).sandboxes.list()
    with pytest.raises(BadRequestError, match="no-such-template"):
        client.sandboxes.create(template="no-such-template")
    with pytest.raises(NotFoundError):
        client.sandboxes.get(str(uuid.uuid4()))
