"""The process that turns specifications of charts into pictures, for all contexts of a sandbox.

    {"op": "render", "kind": "plotly" | "vega", "spec": {...}, "width": 700, "height": 500, "scale": 1, "format": "png" | "svg" | ...}
    {"op": "rendered", "data": "<base64>"}        {"op": "failed", "message": "..."}
    {"op": "warm", "kind": "plotly"}              starts what draws, and answers nothing

Charts of one kind are drawn one after another. What draws is started when it is first wanted, kept, and killed when it hangs.
"""

from __future__ import annotations

import argparse
import base64
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from ..channel import Channel, ChannelClosed, Message
from .chromium import Chromium
from .engine import MAX_PIXELS, MAX_SIDE, EngineBroken, NotRendered
from .vega import Vega

#: Longest time for one picture, its turn and the start of what draws it included, in seconds.
MAX_SECONDS = 30.0
MAX_CONNECTIONS = 32
_FORMATS = {"plotly": ("png", "svg", "jpeg", "webp"), "vega": ("png", "svg")}
_LONGEST_MESSAGE = 500


@dataclass(frozen=True)
class Request:
    """A picture that someone wants, checked."""

    kind: str
    spec: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, message: Message) -> Request:
        """Reads it. Raises ``NotRendered`` if it asks for what cannot be."""
        kind, spec, form = message.get("kind"), message.get("spec"), message.get("format", "png")
        if kind not in _FORMATS or not isinstance(spec, dict) or form not in _FORMATS[kind]:
            raise NotRendered("no such kind, specification or format")
        width, height = _number(message, "width", 700, MAX_SIDE), _number(message, "height", 500, MAX_SIDE)
        scale = _number(message, "scale", 1, 8)
        if max(width, height) * scale > MAX_SIDE or width * height * scale * scale > MAX_PIXELS:
            raise NotRendered(f"a picture of {width * scale:.0f} x {height * scale:.0f} pixels is too large")
        return cls(kind, spec, {"format": form, "width": width, "height": height, "scale": scale})


def _number(message: Message, name: str, default: float, most: float) -> float:
    value = message.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise NotRendered(f"{name} must be a number between 0 and {most:g}")
    return value


class Worker:
    """One kind of charts: what draws them, and whose turn it is."""

    def __init__(self, engine: Chromium | Vega) -> None:
        self._engine = engine
        self._turn = threading.Lock()

    def warm(self, deadline: float) -> None:
        """Starts what draws."""
        self._do(deadline, lambda: self._engine.start(deadline))

    def render(self, request: Request, deadline: float) -> str:
        """Draws. Raises ``NotRendered`` and ``EngineBroken``, after which it can be used again."""
        return self._do(deadline, lambda: self._engine.render(request.spec, request.options, deadline))

    def kill(self) -> None:
        """Ends what draws, whatever it does."""
        self._engine.kill()

    def _do(self, deadline: float, work: Any) -> Any:
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise EngineBroken("other charts took too long")
        try:
            return work()
        except NotRendered:
            raise
        except BaseException:
            self._engine.kill()
            raise
        finally:
            self._turn.release()


class Renderer:
    """Serves connections, each in a thread."""

    def __init__(self) -> None:
        self._workers = {"plotly": Worker(Chromium()), "vega": Worker(Vega())}
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def serve(self, listener: socket.socket) -> None:
        """Accepts for ever."""
        while True:
            self._free.acquire()
            connection, _address = listener.accept()
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def kill(self) -> None:
        """Ends all that was started."""
        for worker in self._workers.values():
            worker.kill()

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection:
                channel = Channel(connection)
                while True:
                    message, fds = channel.receive()
                    for fd in fds:
                        os.close(fd)
                    answer = self._answer(message, connection)
                    if answer is not None:
                        channel.send(answer)
        except ChannelClosed:
            return
        finally:
            self._free.release()

    def _answer(self, message: Message, connection: socket.socket) -> Message | None:
        deadline = time.monotonic() + MAX_SECONDS
        try:
            if message.get("op") == "warm" and message.get("kind") in self._workers:
                self._workers[message["kind"]].warm(deadline)
                return None
            if message.get("op") != "render":
                raise NotRendered("no such operation")
            request = Request.of(message)
            if _is_gone(connection):
                return None
            data = self._workers[request.kind].render(request, deadline)
        except Exception as error:
            # Also what the engines did not foresee: a chart must not end the renderer.
            return {"op": "failed", "message": (str(error) or type(error).__name__)[:_LONGEST_MESSAGE]}
        if request.options["format"] == "svg":
            data = base64.b64encode(data.encode("utf-8", "replace")).decode("ascii")
        return {"op": "rendered", "data": data}


def _is_gone(connection: socket.socket) -> bool:
    """Whether who asked has stopped waiting."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except OSError:
        return False


def _listen(path: str) -> socket.socket:
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(MAX_CONNECTIONS)
    return listener


def _end(*_: object) -> None:
    raise SystemExit(0)


def main(arguments: list[str] | None = None) -> int:
    """Serves until it is told to end."""
    parser = argparse.ArgumentParser(prog="renderer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen-fd", type=int, help="a listening Unix socket")
    where.add_argument("--listen", metavar="PATH", help="where to make one")
    options = parser.parse_args(arguments)
    listener = _listen(options.listen) if options.listen else socket.socket(fileno=options.listen_fd)
    listener.setblocking(True)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    renderer = Renderer()
    try:
        renderer.serve(listener)
    finally:
        renderer.kill()
    return 0
