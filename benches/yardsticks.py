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


class BareRestore:
    """`runsc restore` of the template's snapshot without a server, to the agent's first answer on its pipes."""

    FLAGS = ("--platform=systrap", "--network=none")

    def __init__(self, data_dir: Path, bundle_of: Path):
        """`bundle_of` is the directory of a machine that the server restored from the same snapshot."""
        template = max((data_dir / "templates/code-interpreter").iterdir(), key=lambda path: path.stat().st_mtime)
        self.image = template / "snapshot"
        if not (self.image / "checkpoint.img").exists():
            self.image = next(self.image.rglob("checkpoint.img")).parent
        self.config = json.loads((bundle_of / "config.json").read_text())
        # A directory in memory, as the server's scratch space is.
        self.root = Path(tempfile.mkdtemp(prefix="pandastack-bench-", dir="/dev/shm"))

    def close(self) -> None:
        shutil.rmtree(self.root)
        for group in Path("/sys/fs/cgroup").glob(f"**/{CGROUP}"):
            group.rmdir()

    def measure(self) -> float:
        name = f"bench-{uuid.uuid4().hex}"
        bundle = self.root / name
        (bundle / "upper").mkdir(parents=True)
        config = self.config | {"linux": {**self.config["linux"], "cgroupsPath": f"/{CGROUP}/{name}"}}
        (bundle / "config.json").write_text(json.dumps(config))
        to_agent, from_agent = bundle / "to-agent", bundle / "from-agent"
        os.mkfifo(to_agent)
        os.mkfifo(from_agent)
        runsc = ["runsc", f"--root={self.root / 'state'}", *self.FLAGS, f"--overlay2=root:dir={bundle / 'upper'}"]
        ends = [os.open(path, os.O_RDWR) for path in (to_agent, from_agent)]
        try:
            started = time.perf_counter()
            subprocess.run(
                [*runsc, "restore", "--detach", "--bundle", bundle, "--image-path", self.image, name],
                stdin=ends[0],
                stdout=ends[1],
                stderr=subprocess.DEVNULL,
                check=True,
            )
            self._first_answer(*ends)
            return time.perf_counter() - started
        finally:
            subprocess.run([*runsc, "kill", name, "KILL"], stderr=subprocess.DEVNULL, check=False)
            subprocess.run([*runsc, "delete", "--force", name], stderr=subprocess.DEVNULL, check=False)
            for end in ends:
                os.close(end)
            shutil.rmtree(bundle, ignore_errors=True)

    @staticmethod
    def _first_answer(to_agent: int, from_agent: int) -> None:
        """Opens a connection as the server does: see crates/agent-protocol/src/link/frame.rs."""
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
