"""What sandboxes leave on the host: processes, mounts, cgroups, pipes, directories."""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

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
