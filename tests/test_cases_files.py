"""O-45 to O-49: files and disk. Each test is named after its case in the field."""

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pandastack import Sandbox

from cells import Context
from footprint import growth_kib
from server import Api, Server

MEBIBYTE = 1 << 20


def check_both_ways(sandbox: Sandbox, path: str, data: bytes) -> None:
    sandbox.filesystem.write(path, data)
    assert sandbox.exec(f"sha256sum {path}").stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert sandbox.filesystem.read(path) == data
    sandbox.exec(f"rm {path}", check=True)


@pytest.mark.parametrize("size", [0, 1, 4096, 18 * 1024 - 1, 18 * 1024 + 1, 65536, MEBIBYTE])
def test_o45_sizes(sandbox: Sandbox, size: int):
    check_both_ways(sandbox, f"/tmp/f{size}", os.urandom(size))


def test_o45_64_mebibytes_in_bounded_memory(server: Server, sandbox: Sandbox):
    data = os.urandom(64 * MEBIBYTE)
    assert growth_kib(server.process.pid, lambda: check_both_ways(sandbox, "/tmp/large", data)) < 32 * 1024


def test_o46_one_user_and_directory(ctx: Context, sandbox: Sandbox):
    home = sandbox.exec("echo ~").stdout.strip()
    sandbox.filesystem.write(f"{home}/d/a.txt", "1")
    x = sandbox.exec("cd ~/d && mv a.txt b.txt && touch c && id -un", check=True)
    assert ctx.run("import getpass; getpass.getuser()").text == repr(x.stdout.strip())
    assert ctx.run(f"open('{home}/d/b.txt').read()").text == "'1'"
    ctx.run("open('made_by_kernel.txt','w').write('k')")
    assert sandbox.exec("cat made_by_kernel.txt").stdout == "k"


@pytest.fixture
def marker() -> Iterator[Path]:
    """A file of the host."""
    path = Path("/etc/pandastack-marker-of-the-host")
    path.write_text("of the host")
    yield path
    path.unlink()


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/{name}",
        "/proc/1/root/etc/{name}",
        "/proc/self/root/../../../etc/{name}",
        "..%2f..%2fetc/{name}",
        "a/../../etc/{name}",
        "//etc/{name}",
        "/../../../../etc/{name}",
        "/tmp/outside/etc/{name}",
        "x\0y",
    ],
)
def test_o47_names_that_reach_outside(api: Api, sandbox: Sandbox, marker: Path, path: str):
    sandbox.exec("ln -sfn /proc/1/root/../../.. /tmp/outside", check=True)
    parameters = {"path": path.format(name=marker.name)}
    read = api.get(f"/sandboxes/{sandbox.id}/fs", params=parameters)
    written = api.put(f"/sandboxes/{sandbox.id}/fs", params=parameters, data=b"from a sandbox")
    assert read.status_code in (400, 404) and b"of the host" not in read.content
    assert written.status_code in (200, 400) and (written.ok or "\0" not in path or written.status_code == 400)
    assert marker.read_text() == "of the host"
    api.delete(f"/sandboxes/{sandbox.id}/fs", params={"path": f"/etc/{marker.name}"})


def test_o48_overwriting(ctx: Context, sandbox: Sandbox):
    for i in range(10):
        sandbox.filesystem.write(f"/data/f{i}.csv", str(i))
    sandbox.filesystem.write("/data/f0.csv", "new")
    names = repr(" ".join(f"f{i}.csv" for i in range(10)))
    for _ in range(5):
        assert ctx.run("import os; ' '.join(sorted(os.listdir('/data')))").text == names
    assert sandbox.filesystem.read("/data/f0.csv") == b"new"


def test_o48_overwriting_is_atomic(server: Server, sandbox: Sandbox):
    contents = [b"a" * 500_000, b"b" * 500_000]
    sandbox.filesystem.write("/data/atomic", contents[0])
    stop = threading.Event()

    def write() -> None:
        writer = server.client().sandboxes.get(sandbox.id)
        while not stop.is_set():
            for content in contents:
                writer.filesystem.write("/data/atomic", content)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            seen = {sandbox.filesystem.read("/data/atomic") for _ in range(40)}
        finally:
            stop.set()
        writing.result()
    assert seen <= set(contents)


FILL = """
try:
    with open("/tmp/fill", "wb") as f:
        while True: f.write(b"0" * 10_000_000)
except OSError as x: print(x.errno)
"""


def test_o49_full_disk(server: Server, api: Api):
    """A disk of its own: the sandbox of the other tests stays as it is."""
    free = shutil.disk_usage(server.data_dir).free
    with server.client().sandboxes.create(ttl_seconds=900) as sandbox:
        context, file = Context(api, sandbox.id), f"/sandboxes/{sandbox.id}/fs"
        assert context.run(FILL, timeout=300).stdout == "28\n", "no space left on device"
        assert context.run("1+1").text == "2"
        full = api.put(file, params={"path": "/tmp/z"}, data=b"1" * MEBIBYTE)
        assert (full.status_code, full.json()["code"]) == (507, "file.no_space")
        assert "no space" in full.json()["error"]
        printed = context.run("import matplotlib.pyplot as plt; plt.plot([1]); print('still')", timeout=60)
        assert printed.stdout == "still\n", "a context needs no disk"
        assert api.delete(file, params={"path": "/tmp/fill"}).status_code == 204
        assert api.put(file, params={"path": "/tmp/z"}, data=b"1" * MEBIBYTE).status_code == 200
        assert shutil.disk_usage(server.data_dir).free > free - 4 * 1024 * MEBIBYTE, "bounded by the quota"
    assert shutil.disk_usage(server.data_dir).free > free - 512 * MEBIBYTE
