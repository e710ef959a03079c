"""Images that are not what they were, or of another machine: refused with the reason before anything starts."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from boxes import Box, flip_a_byte, image_file, killed, listed, refused
from cells import Context
from leftovers import assert_consistent, machine_ids
from server import Server


@dataclass
class Taken:
    """A snapshot, its files, and an untouched copy of them."""

    server: Server
    identity: str
    context: Context
    files: Path
    whole: Path


@pytest.fixture(scope="module")
def taken(make_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    server = make_server()
    source = Box.create(server.api())
    context = source.context()
    context.run("x = 41")
    identity = source.snapshot()["id"]
    source.kill()
    files = server.data_dir / "snapshots" / identity
    whole = tmp_path_factory.mktemp("whole") / identity
    shutil.copytree(files, whole)
    yield Taken(server, identity, context, files, whole)
    server.stop()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4096)


def manifest(**changes: object) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        path = directory / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def processor(directory: Path) -> None:
    path = directory / "manifest.json"
    body = json.loads(path.read_text())
    body["cpu"]["flags"].append("quantum")
    path.write_text(json.dumps(body))


def outside(directory: Path) -> None:
    path = directory / "manifest.json"
    body = json.loads(path.read_text())
    body["files"][0]["path"] = "../../pandastack.db"
    path.write_text(json.dumps(body))


DAMAGED = {
    "a flipped byte of the pages": (lambda d: flip_a_byte(image_file(d, "pages.img")), "pages.img"),
    "a flipped byte of the state": (lambda d: flip_a_byte(image_file(d, "checkpoint.img")), "checkpoint.img"),
    "cut pages": (lambda d: cut(image_file(d, "pages.img")), "pages.img"),
    "no state": (lambda d: image_file(d, "checkpoint.img").unlink(), "checkpoint.img"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "manifest"),
    "half a manifest": (lambda d: (d / "manifest.json").write_text('{"format": 1, "eng'), "manifest"),
    "a manifest of foreign files": (outside, "manifest"),
}
FOREIGN = {
    "another format": (manifest(format=99), "99"),
    "another engine": (manifest(engine="sim"), "sim"),
    "another version": (manifest(engine_version="runsc 1999"), "runsc 1999"),
    "another processor": (processor, "quantum"),
    "a newer agent": (manifest(agent_generation=99), "99"),
}


def refuse(taken: Taken, damage: Callable[[Path], object], says: str, *statuses: int, code: str) -> None:
    api = taken.server.api()
    shutil.rmtree(taken.files, ignore_errors=True)
    shutil.copytree(taken.whole, taken.files)
    damage(taken.files)
    for _ in range(2):
        refused(api.post("/sandboxes", {"from_snapshot": taken.identity}), *statuses, code=code, says=says)
    assert listed(api) == {} and machine_ids(taken.server.data_dir) == set()
    shutil.rmtree(taken.files, ignore_errors=True)
    shutil.copytree(taken.whole, taken.files)
    assert_consistent(taken.server)


@pytest.mark.parametrize(("damage", "says"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_snapshot(taken: Taken, damage: Callable[[Path], object], says: str):
    refuse(taken, damage, says, 500, code="snapshot.damaged")


def test_a_snapshot_without_files(taken: Taken):
    refuse(taken, shutil.rmtree, "", 404, 500, code="snapshot.")


@pytest.mark.parametrize(("change", "says"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_snapshot(taken: Taken, change: Callable[[Path], None], says: str):
    refuse(taken, change, says, 409, code="snapshot.incompatible")


def test_a_damaged_one_after_a_restart(taken: Taken):
    """What was checked before the restart is not trusted after it."""
    taken.server.restart()
    refuse(taken, DAMAGED["a flipped byte of the pages"][0], "pages.img", 500, code="snapshot.damaged")


def test_put_right_it_can_be_used(taken: Taken):
    box = Box.create(taken.server.api(), from_snapshot=taken.identity)
    with killed(box):
        assert box.same(taken.context).run("x + 1").text == "42"


def test_a_damaged_one_can_be_deleted(taken: Taken):
    cut(image_file(taken.files, "pages.img"))
    assert taken.server.api().delete(f"/snapshots/{taken.identity}").status_code == 200
    assert not taken.files.exists()
    assert_consistent(taken.server)
