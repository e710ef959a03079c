"""Drives a real zygote over its socket, exactly as the agent does."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PACKAGE_ROOT))

from pandastack_interpreter.channel import Channel, ChannelClosed, Message  # noqa: E402

#: Contexts must answer within this; it bounds a hang and says nothing about speed.
PATIENCE = 60.0


@dataclass
class Run:
    """What one cell said."""

    stdout: str = ""
    stderr: str = ""
    events: list[Message] = field(default_factory=list)
    end: Message = field(default_factory=dict)
    late: list[Message] = field(default_factory=list)

    @property
    def results(self) -> list[dict[str, str]]:
        """The main result first, then displays in order, updates merged, as the host folds them."""
        main = [e["data"] for e in self.events if e["op"] == "result"]
        displays: list[tuple[str | None, dict[str, str]]] = []
        for event in self.events:
            if event["op"] == "clear":
                displays.clear()
            if event["op"] != "display":
                continue
            if event["update"]:
                displays = [(i, event["data"] if i == event["display_id"] else d) for i, d in displays]
            else:
                displays.append((event["display_id"], event["data"]))
        return main + [data for _id, data in displays]

    @property
    def text(self) -> str | None:
        """text/plain of the main result."""
        return next((e["data"].get("text/plain") for e in self.events if e["op"] == "result"), None)

    @property
    def error(self) -> Message | None:
        """The error event."""
        return next((e for e in self.events if e["op"] == "error"), None)

    @property
    def pngs(self) -> list[str]:
        """Every picture, base64."""
        return [r["image/png"] for r in self.results if "image/png" in r]


class Context:
    """The agent's side of one context."""

    def __init__(self, channel: Channel, stdout: int, stderr: int, pid: int) -> None:
        self.channel, self.pid = channel, pid
        self._pipes = {"stdout": stdout, "stderr": stderr}
        self._cell = 0
        for fd in self._pipes.values():
            os.set_blocking(fd, False)

    def start(self, code: str, **options: Any) -> int:
        """Sends a cell without waiting."""
        self._cell += 1
        self.channel.send({"op": "run", "cell": self._cell, "code": code, "env": {}, "cwd": "", **options})
        return self._cell

    def run(self, code: str, interrupt_after: float | None = None, **options: Any) -> Run:
        """Runs one cell to its end."""
        self._drain(Run())
        return self.collect(self.start(code, **options), interrupt_after)

    def collect(self, cell: int, interrupt_after: float | None = None) -> Run:
        """Waits for the end of a cell, reading its pipes before each message."""
        run, started = Run(), time.monotonic()
        interrupt_at = None if interrupt_after is None else started + interrupt_after
        while True:
            if time.monotonic() - started > PATIENCE:
                raise TimeoutError(f"no end after {PATIENCE} s; so far {run}")
            if interrupt_at is not None and time.monotonic() >= interrupt_at:
                os.killpg(self.pid, signal.SIGINT)
                interrupt_at = time.monotonic() + 0.25
            ready, _, _ = select.select([self.channel, *self._pipes.values()], [], [], 0.05)
            self._drain(run)
            if self.channel in ready and self._message(run, cell):
                self._decode(run)
                return run

    def _message(self, run: Run, cell: int) -> bool:
        message, _fds = self.channel.receive()
        self._drain(run)
        if message["op"] == "sync":
            self.channel.send({"op": "synced"})
        elif message["op"] == "stream":
            run.late.append(message)
        elif message["op"] == "end" and message["cell"] == cell:
            run.end = message
            return True
        else:
            run.events.append(message)
        return False

    def read(self, name: str) -> str:
        """What is in one of the pipes now."""
        run = Run()
        self._drain(run)
        return str(getattr(run, name))

    def _drain(self, run: Run) -> None:
        # A pipe's capacity and no more: whatever was written before the message is in there, and a flood must not hold us.
        for name, fd in self._pipes.items():
            try:
                setattr(run, name, getattr(run, name) + os.read(fd, 65536).decode("latin-1"))
            except BlockingIOError:
                pass

    @staticmethod
    def _decode(run: Run) -> None:
        for name in ("stdout", "stderr"):
            setattr(run, name, getattr(run, name).encode("latin-1").decode("utf-8", "replace"))

    def close(self) -> None:
        """Ends the context and its process group."""
        self.channel.close()
        for fd in self._pipes.values():
            os.close(fd)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Zygote:
    """A running zygote."""

    def __init__(self, *warm: str) -> None:
        ours, theirs = socket.socketpair()
        arguments = [a for name in warm for a in ("--warm-import", name)]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pandastack_interpreter.zygote", "--control-fd", str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        ours.settimeout(PATIENCE)
        self._socket, self.control = ours, Channel(ours)
        self.ready, _ = self.control.receive()
        self.exits: list[Message] = []

    def fork(self, env: dict[str, str] | None = None, cwd: str = "/tmp", **options: str) -> Context:  # noqa: S108
        """Makes a context, passing its three descriptors in one message."""
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        body = {"op": "fork", "context_id": "c", "cwd": cwd, "env": env or {}, **options}
        import json
        import struct

        data = json.dumps(body).encode()
        fds = [theirs.fileno(), out_write, err_write]
        socket.send_fds(self._socket, [struct.pack(">I", len(data)) + data], fds)
        for fd in (out_write, err_write):
            os.close(fd)
        theirs.close()
        forked = self.expect("forked", "fork_failed")
        if forked["op"] == "fork_failed":
            raise OSError(forked["message"])
        ours.settimeout(PATIENCE)
        channel = Channel(ours)
        hello, _ = channel.receive()
        assert hello == {"op": "hello", "pid": forked["pid"]}
        return Context(channel, out_read, err_read, forked["pid"])

    def expect(self, *operations: str) -> Message:
        """The next message of one of these kinds; exits on the way are kept."""
        while True:
            message, _ = self.control.receive()
            if message["op"] == "exited":
                self.exits.append(message)
            if message["op"] in operations:
                return message

    def close(self) -> None:
        """Ends it."""
        self.control.close()
        self.process.wait(PATIENCE)


__all__ = ["ChannelClosed", "Context", "Run", "Zygote"]
