"""What sandboxes leave on the host: processes, mounts, cgroups, pipes, directories, snapshots, rows."""

import os
import re
import shutil
import sqlite3
import stat
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from server import Server, wait_until

VM_ID = re.compile(r"vm-[0-9a-f]{32}")


@dataclass
class Traces:
    """Everything on this host that bears the name of one of a server's machines."""

    processes: set[str] = field(default_factory=set)
    mounts: set[str] = field(default_factory=set)
    cgroups: set[str] = field(default_factory=set)
    pipes: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return any(vars(self).values())


def machine_ids(data_dir: Path) -> set[str]:
    """The machines that have a directory under the data directory."""
    vms = data_dir / "engine/vms"
    names = os.listdir(vms) if vms.is_dir() else []
    return {name for name in names if VM_ID.fullmatch(name)}


def traces(data_dir: Path, ids: set[str], server_pid: int | None = None) -> Traces:
    """Finds what bears one of `ids`, or lies under the data directory and bears any machine's id."""
    marks = (*ids, str(data_dir))
    own = {os.getpid(), server_pid}
    found = Traces()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        command = _read(Path("/proc", pid, "cmdline")).replace("\0", " ")
        if int(pid) not in own and any(mark in command for mark in marks):
            found.processes.add(f"{pid} {command[:200]}")
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        if any(mark in line for mark in marks):
            found.mounts.add(line)
    for parent, children, _ in os.walk("/sys/fs/cgroup"):
        found.cgroups.update(f"{parent}/{child}" for child in children if any(i in child for i in ids))
    for parent, children, files in os.walk(data_dir):
        found.directories.update(f"{parent}/{child}" for child in children if VM_ID.search(child))
        found.pipes.update(f"{parent}/{name}" for name in files if _is_pipe(f"{parent}/{name}"))
    return found


def machine_groups(data_dir: Path) -> set[str]:
    """The machines that have a cgroup."""
    path = os.fsencode((data_dir / "engine/vms").resolve())
    # The name of their parent: FNV-1a, as in crates/engine-gvisor/src/engine.rs.
    mark = 0xCBF29CE484222325
    for byte in path:
        mark = (mark ^ byte) * 0x100000001B3 % 2**64
    parent = f"pandastack-{mark:016x}"
    return {group.name for group in Path("/sys/fs/cgroup").glob(f"**/{parent}/vm-*")}


def stored(data_dir: Path) -> set[str]:
    """What lies in the store of snapshots, whole or not."""
    return {entry.name for entry in (data_dir / "snapshots").glob("*")}


@dataclass
class Rows:
    """What the database knows: ids with statuses."""

    sandboxes: dict[str, str]
    # Of sandboxes that have one: those that run or are paused.
    machines: set[str]
    snapshots: dict[str, tuple[str, str]]


def rows(data_dir: Path) -> Rows:
    """Reads a copy, so that the server is not disturbed. Ended sandboxes are history and left out."""
    with tempfile.TemporaryDirectory() as copy:
        for file in data_dir.glob("pandastack.db*"):
            shutil.copy(file, copy)
        with closing(sqlite3.connect(Path(copy, "pandastack.db"))) as database:
            sandboxes = database.execute("SELECT id, status, vm_id FROM sandboxes WHERE status <> 'deleted'").fetchall()
            kept = database.execute("SELECT id, kind, status FROM snapshots").fetchall()
    return Rows(
        {identity: status for identity, status, _ in sandboxes},
        {machine for _, status, machine in sandboxes if status in ("running", "paused")},
        {identity: (kind, status) for identity, kind, status in kept},
    )


def everything(server: Server) -> list[str]:
    """All that is left of a server's sandboxes and snapshots, as lines."""
    data_dir = server.data_dir
    ids = machine_ids(data_dir) | machine_groups(data_dir)
    found = traces(data_dir, ids, server.process.pid)
    left = [f"{kind}: {one}" for kind, those in vars(found).items() for one in those]
    known = rows(data_dir)
    left += [f"snapshot on disk: {name}" for name in stored(data_dir)]
    left += [f"row of a sandbox: {one}" for one in known.sandboxes.items()]
    return left + [f"row of a snapshot: {one}" for one in known.snapshots.items()]


def assert_nothing_left(server: Server, seconds: float = 20) -> None:
    """After everything was deleted; what ends late has some seconds."""
    try:
        wait_until(lambda: not everything(server), seconds, "the end of what is left")
    except AssertionError:
        raise AssertionError("left behind:\n" + "\n".join(everything(server))) from None


def assert_consistent(server: Server, seconds: float = 20) -> None:
    """Each machine and each snapshot belongs to a row, and each row to what it says."""

    def problems() -> list[str]:
        known, data_dir = rows(server.data_dir), server.data_dir
        machines = machine_ids(data_dir) | machine_groups(data_dir)
        found = [f"{one} belongs to no sandbox" for one in machines - known.machines]
        found += [f"{one} does not exist" for one in known.machines - machines]
        found += [f"{name} on disk has no row" for name in stored(data_dir) - known.snapshots.keys()]
        found += [f"{name} is not on disk" for name in known.snapshots.keys() - stored(data_dir)]
        found += [f"{one} is half done" for one in known.snapshots.items() if one[1][1] != "ready"]
        answered = {one["id"]: one["status"] for one in server.api().get("/sandboxes").json()}
        if answered != known.sandboxes:
            found.append(f"answered {answered}, stored {known.sandboxes}")
        return found

    try:
        wait_until(lambda: not problems(), seconds, "consistency")
    except AssertionError:
        raise AssertionError("\n".join(problems())) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
