"""Snapshots, forks, hibernation and waking of a warm data stack beside `runsc` doing the same work by itself."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from leftovers import machine_ids
from measures import Api, Row, in_turns
from server import Server
from statistics_of import Summary
from yardsticks import BareMachine, BareRunsc

WARM = """
import matplotlib.pyplot as plt, numpy as np, pandas as pd
frame = pd.DataFrame({"a": np.arange(1000.0), "b": np.random.default_rng(7).normal(size=1000)})
figure = plt.figure(); plt.hist(frame.b, bins=30); plt.show()
x = 41
"""
# 300 MB that no compression and no deduplication can help with.
DATA = "data = np.random.default_rng(7).bytes(300_000_000)"
FORKS = 8


@dataclass
class Pair:
    """A sandbox of the server, and a bare machine restored from its snapshot: the same memory and processes."""

    server: Server
    api: Api
    sandbox: str
    context: str
    bare: BareRunsc
    image: Path
    machine: BareMachine
    # On the same file system as the server's snapshots.
    scratch: Path

    def first_cell(self, sandbox: str, api: Api | None = None) -> None:
        cell = (api or self.api).run(sandbox, self.context, "x + 1")
        assert cell["results"][0]["text/plain"] == "42", cell

    def snapshot(self) -> float:
        started = time.perf_counter()
        taken = self.api.call("POST", f"/sandboxes/{self.sandbox}/snapshots")
        took = time.perf_counter() - started
        self.api.call("DELETE", f"/snapshots/{taken['id']}")
        return took

    def standstill(self) -> float:
        """How long the source of a snapshot stands still."""
        taken = self.api.call("POST", f"/sandboxes/{self.sandbox}/snapshots")
        self.api.call("DELETE", f"/snapshots/{taken['id']}")
        return taken["paused_ms"] / 1000

    def checkpoint(self) -> float:
        with self.directory() as image:
            return self.bare.checkpoint(self.machine, image)

    def durable_checkpoint(self) -> float:
        """With its files on the disk, as those of a snapshot are when it is answered."""
        with self.directory() as image:
            took, started = self.bare.checkpoint(self.machine, image), time.perf_counter()
            for path in (*image.iterdir(), image):
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
            return took + time.perf_counter() - started

    def fork(self, count: int) -> float:
        """Until each child has answered its first cell."""
        started = time.perf_counter()
        answer = self.api.call("POST", f"/sandboxes/{self.sandbox}/fork", {"count": count})
        children = [child["id"] for child in answer["children"]]
        with ThreadPoolExecutor(count) as threads:
            list(threads.map(lambda child: self.first_cell(child, Api(self.server)), children))
        took = time.perf_counter() - started
        for child in children:
            self.api.kill(child)
        return took

    def bare_fork(self, count: int) -> float:
        with self.directory() as image, ThreadPoolExecutor(count) as threads:
            started = time.perf_counter()
            self.bare.checkpoint(self.machine, image)
            machines = [machine for machine, _ in threads.map(self.bare.restore, [image] * count)]
            took = time.perf_counter() - started
            for machine in machines:
                self.bare.delete(machine)
        return took

    def hibernate(self) -> float:
        started = time.perf_counter()
        self.api.call("POST", f"/sandboxes/{self.sandbox}/hibernate")
        took = time.perf_counter() - started
        self.first_cell(self.sandbox)
        return took

    def bare_hibernate(self) -> float:
        with self.directory() as image:
            machine, _ = self.bare.restore(self.image)
            started = time.perf_counter()
            self.bare.checkpoint(machine, image, leave_running=False)
            self.bare.delete(machine)
            return time.perf_counter() - started

    def wake(self) -> float:
        self.api.call("POST", f"/sandboxes/{self.sandbox}/hibernate")
        started = time.perf_counter()
        self.first_cell(self.sandbox)
        return time.perf_counter() - started

    def bare_wake(self) -> float:
        machine, took = self.bare.restore(self.image)
        self.bare.delete(machine)
        return took

    @contextmanager
    def directory(self) -> Iterator[Path]:
        image = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            yield image
        finally:
            shutil.rmtree(image)


@contextmanager
def pair(server: Server, *cells: str) -> Iterator[Pair]:
    api = Api(server)
    sandbox = api.create()["id"]
    context = api.context(sandbox)
    for cell in cells:
        assert "error" not in api.run(sandbox, context, cell)
    (name,) = machine_ids(server.data_dir)
    bare = BareRunsc(server.data_dir / "engine/vms" / name)
    scratch = server.data_dir.parent / "bare"
    scratch.mkdir(exist_ok=True)
    # What a fork is made from is whole, and goes away soon.
    forked = api.call("POST", f"/sandboxes/{sandbox}/fork")
    image = scratch / "image"
    shutil.copytree(server.data_dir / "snapshots" / forked["snapshot_id"], image)
    api.kill(forked["sandbox"]["id"])
    machine, _ = bare.restore(image)
    try:
        yield Pair(server, api, sandbox, context, bare, image, machine, scratch)
    finally:
        bare.delete(machine)
        bare.close()
        shutil.rmtree(image)
        api.kill(sandbox)


def bench_copies(server: Server, count: int) -> list[Row]:
    """`server` has no other sandbox and no pool."""

    def row(name: str, ours, yardstick: str, bare, most_ratio: float | None, samples: int = count) -> Row:
        ours(), bare()
        values, yardsticks = in_turns(samples, ours, bare)
        return Row(name, Summary.of(values), yardstick, Summary.of(yardsticks), most_ratio=most_ratio)

    few = max(3, count // 2)
    with pair(server, WARM) as warm:
        eight = f"bare checkpoint, {FORKS} restores"
        rows = [
            row("snapshot", warm.snapshot, "bare checkpoint", warm.checkpoint, 1.15),
            row("snapshot, on the disk", warm.snapshot, "bare checkpoint, fsync", warm.durable_checkpoint, None),
            row("snapshot, its source stands still", warm.standstill, "bare checkpoint", warm.checkpoint, 1.15),
            row("fork", lambda: warm.fork(1), "bare checkpoint, restore", lambda: warm.bare_fork(1), 1.3),
            row(f"fork of {FORKS}", lambda: warm.fork(FORKS), eight, lambda: warm.bare_fork(FORKS), 1.3, few),
            row("hibernate", warm.hibernate, "bare checkpoint, delete", warm.bare_hibernate, 1.3),
            row("wake to the first answer", warm.wake, "bare restore", warm.bare_wake, 1.3),
        ]
    with pair(server, WARM, DATA) as large:
        rows += [
            row(
                "hibernate, 300 MB of data", large.hibernate, "bare checkpoint, delete", large.bare_hibernate, 1.3, few
            ),
            row("wake, 300 MB of data", large.wake, "bare restore", large.bare_wake, 1.3, few),
        ]
    return rows
