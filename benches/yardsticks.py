"""What PandaStack is measured against, on the same machine in the same run."""

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from jupyter_client.manager import KernelManager

CHART = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
samples = np.random.default_rng(7).normal(size=10_000)
plt.hist(samples, bins=50)
plt.title("10,000 samples")
"""
# Where the bare machines are put.
CGROUP = "pandastack-bench"
SAVE_CHART = "plt.savefig({path!r})\n"


@contextlib.contextmanager
def native_kernel() -> Iterator:
    """An ipykernel of its own, driven through jupyter_client; yields a function that runs one cell to its end."""
    manager = KernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = sys.executable
    # It warns of its own unencrypted sockets.
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def run(code: str) -> None:
        wanted = client.execute(code)
        while client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != wanted:
            pass
        while True:
            message = client.get_iopub_msg(timeout=60)
            idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            if idle and message["parent_header"].get("msg_id") == wanted:
                return

    try:
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def native_script(directory: Path) -> None:
    """`python3 script.py` from cold, drawing and saving the chart."""
    chart = directory / "native.png"
    script = directory / "script.py"
    script.write_text(CHART + SAVE_CHART.format(path=str(chart)))
    subprocess.run([sys.executable, script], check=True, stdin=subprocess.DEVNULL)
    assert chart.read_bytes().startswith(b"\x89PNG")


def template_image(data_dir: Path) -> Path:
    """The snapshot of the newest template."""
    template = max((data_dir / "templates/code-interpreter").iterdir(), key=lambda path: path.stat().st_mtime)
    image = template / "snapshot"
    return image if (image / "checkpoint.img").exists() else next(image.rglob("checkpoint.img")).parent


class BareMachine:
    """A machine that `runsc` restored, with its pipes."""

    def __init__(self, name: str, bundle: Path, state: Path):
        self.name, self.bundle = name, bundle
        self.runsc = ["runsc", f"--root={state}", "--platform=systrap", "--network=none"]
        self.runsc.append(f"--overlay2=root:dir={bundle / 'upper'}")
        self.ends = [os.open(bundle / pipe, os.O_RDWR) for pipe in ("to-agent", "from-agent")]

    def call(self, *arguments: object, check: bool = True, **options: object) -> None:
        subprocess.run([*self.runsc, *map(str, arguments)], stderr=subprocess.DEVNULL, check=check, **options)

    def answer(self) -> None:
        """Opens a connection as the server does: see crates/agent-protocol/src/link/frame.rs."""
        to_agent, from_agent = self.ends
        nonce, epoch = os.urandom(16), os.urandom(4)

        def frame(kind: int) -> bytes:
            return b"PSL1" + struct.pack(">BBH", kind, 0, len(nonce)) + epoch + nonce

        os.set_blocking(from_agent, False)
        os.write(to_agent, frame(2))
        received, deadline = b"", time.monotonic() + 20
        while frame(3) not in received:
            assert time.monotonic() < deadline, "the bare restore does not answer"
            with contextlib.suppress(BlockingIOError):
                received += os.read(from_agent, 1 << 16)
            time.sleep(0.0002)


class BareRunsc:
    """`runsc` without a server, with the bundle and the flags that the server gives it."""

    def __init__(self, bundle_of: Path):
        """`bundle_of` is the directory of a machine of the server."""
        self.config = json.loads((bundle_of / "config.json").read_text())
        # A directory in memory, as the server's scratch space is.
        self.root = Path(tempfile.mkdtemp(prefix="pandastack-bench-", dir="/dev/shm"))

    def close(self) -> None:
        shutil.rmtree(self.root)
        for group in Path("/sys/fs/cgroup").glob(f"**/{CGROUP}"):
            group.rmdir()

    def restore(self, image: Path) -> tuple[BareMachine, float]:
        """A machine, and the seconds to the agent's first answer on its pipes."""
        name = f"bench-{uuid.uuid4().hex}"
        bundle = self.root / name
        (bundle / "upper").mkdir(parents=True)
        config = self.config | {"linux": {**self.config["linux"], "cgroupsPath": f"/{CGROUP}/{name}"}}
        (bundle / "config.json").write_text(json.dumps(config))
        for pipe in ("to-agent", "from-agent"):
            os.mkfifo(bundle / pipe)
        machine = BareMachine(name, bundle, self.root / "state")
        to_agent, from_agent = machine.ends
        restore = ("restore", "--detach", "--bundle", bundle, "--image-path", image, name)
        started = time.perf_counter()
        machine.call(*restore, stdin=to_agent, stdout=from_agent)
        machine.answer()
        return machine, time.perf_counter() - started

    @staticmethod
    def checkpoint(machine: BareMachine, image: Path, leave_running: bool = True) -> float:
        """Seconds that a snapshot of the machine into an empty directory takes."""
        flags = ["--leave-running"] if leave_running else []
        started = time.perf_counter()
        machine.call("checkpoint", *flags, "--compression=none", "--image-path", image, machine.name)
        return time.perf_counter() - started

    @staticmethod
    def delete(machine: BareMachine) -> None:
        machine.call("kill", machine.name, "KILL", check=False)
        machine.call("delete", "--force", machine.name, check=False)
        for end in machine.ends:
            os.close(end)
        shutil.rmtree(machine.bundle, ignore_errors=True)
