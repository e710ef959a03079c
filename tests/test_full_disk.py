"""The disk for snapshots is full: said so, nothing lost, nothing left, and it works again with space."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from boxes import Box, delete_snapshots, listed, refused, snapshots
from cells import Context
from leftovers import assert_consistent, everything, stored
from server import Server, wait_until

MEGABYTE = 1 << 20
DISK = 700 * MEGABYTE
OPERATIONS = [("snapshots", None), ("hibernate", None), ("fork", {"count": 2})]


@dataclass
class SmallDisk:
    """A server whose snapshots are on a file system of their own, and a sandbox."""

    server: Server
    mount: Path
    box: Box
    context: Context

    def leave(self, free: int) -> None:
        """Makes the file system as small as that."""
        now = os.statvfs(self.mount)
        self._resize((now.f_blocks - now.f_bfree) * now.f_frsize + free)

    def make_space(self) -> None:
        self._resize(DISK)

    def _resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={max(size, 4096)}", self.mount], check=True)

    def check(self) -> None:
        """The sandbox goes on, and nothing is left of what failed."""
        assert self.box.status == "running"
        assert self.context.run("x + 1", 60).text == "42" and self.box.read("/workspace/file") == "kept"
        assert set(listed(self.box.api)) == {self.box.id} and snapshots(self.box.api) == []
        assert_consistent(self.server)
        assert stored(self.server.data_dir) == set()

    def refuse(self, verb: str, body: dict | None = None) -> None:
        answer = self.box.post(verb, body)
        refused(answer, 507, code="capacity.disk")
        assert int(answer.headers["Retry-After"]) > 0


@pytest.fixture
def disk(make_server: Callable[..., Server], request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """`request.param` is the reserve in megabytes."""
    server = make_server("--fork-keep-seconds", "1", "--min-free-disk-mb", str(getattr(request, "param", 0)))
    box = Box.create(server.api())
    context = box.context()
    context.run("x = 41")
    box.write("/workspace/file", "kept")
    server.terminate()
    mount = server.data_dir / "snapshots"
    mount.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "small", mount], check=True)
    try:
        server.start()
        yield SmallDisk(server, mount, box, context)
        for identity in listed(server.api()):
            assert server.api().delete(f"/sandboxes/{identity}").status_code == 204
        delete_snapshots(server.api())
        own = f" {mount} "
        wait_until(lambda: not [line for line in everything(server) if own not in line], 20, "the end of everything")
    finally:
        server.stop()
        subprocess.run(["umount", "--lazy", mount], check=True)


@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize(("verb", "body"), OPERATIONS)
def test_no_space_on_the_way(disk: SmallDisk, verb: str, body: dict | None, share: float):
    """There is room for so much of an image."""
    size = disk.box.snapshot()["size_bytes"]
    delete_snapshots(disk.box.api)
    disk.leave(int(share * size))
    disk.refuse(verb, body)
    disk.check()
    disk.make_space()
    assert disk.box.post(verb, body).ok
    assert disk.context.run("x + 1", 60).text == "42"


@pytest.mark.parametrize("disk", [2000], indirect=True)
def test_the_reserve_is_kept(disk: SmallDisk):
    """More is to be left free than there is."""
    for verb, body in OPERATIONS:
        disk.refuse(verb, body)
        disk.check()


def test_waking_and_creating_without_space(disk: SmallDisk):
    """Bringing an image back may need space. Then that is said, the image is unharmed, and space helps."""
    taken = disk.box.snapshot()["id"]
    assert disk.box.do("hibernate") == {"status": "hibernated"}
    disk.leave(0)
    created = disk.box.api.post("/sandboxes", {"from_snapshot": taken})
    if created.status_code == 201:
        Box(disk.box.api, created.json()).kill()
    else:
        refused(created, 507, code="capacity.disk")
    cell = disk.context.run("x + 1", 60)
    if cell.status != 200:
        assert (cell.status, disk.box.status) in ((503, "hibernated"), (507, "hibernated")), cell
        disk.make_space()
    assert disk.context.run("x + 1", 60).text == "42"
    disk.make_space()
    copy = Box.create(disk.box.api, from_snapshot=taken)
    assert copy.same(disk.context).run("x + 1", 60).text == "42"
