"""What processes of this host and of a sandbox cost: memory, descriptors, threads, files."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pandastack import Sandbox


def resident_kib(pid: int, line: str = "VmRSS") -> int:
    """The memory of a process of this host; with `line="VmHWM"` the most that it had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(text.split()[1]) for text in status.splitlines() if text.startswith(f"{line}:"))


def growth_kib(pid: int, work: Callable[[], object]) -> int:
    """By how much memory a process grew at most while `work` ran."""
    before = resident_kib(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    work()
    return resident_kib(pid, "VmHWM") - before


@dataclass
class Footprint:
    """What a sandbox has, as seen from inside."""

    agent_kib: int
    agent_descriptors: int
    context_kib: int
    context_descriptors: int
    context_threads: int
    processes: int
    temporary_files: int


_MEASURE = """
import json, os, sys

def status(pid, name):
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

context = int(sys.argv[1])
print(json.dumps({
    "agent_kib": status(1, "VmRSS"),
    "agent_descriptors": len(os.listdir("/proc/1/fd")),
    "context_kib": status(context, "VmRSS"),
    "context_descriptors": len(os.listdir(f"/proc/{context}/fd")),
    "context_threads": status(context, "Threads"),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "temporary_files": sum(len(files) + len(folders) for root in ("/tmp", "/run", "/dev/shm")
                           for _, folders, files in os.walk(root)),
}))
"""


def inside(sandbox: Sandbox, context_pid: int) -> Footprint:
    """Measures from a process that is not the context's own."""
    sandbox.filesystem.write("/workspace/measure.py", _MEASURE)
    return Footprint(**json.loads(sandbox.exec(f"python3 /workspace/measure.py {context_pid}", check=True).stdout))
