"""The means of the benchmarks: a server, the smallest client there is, samples in turns, numbers with their goals."""

import contextlib
import http.client
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from server import TEMPLATE, Server
from statistics_of import Summary


class Api:
    """The smallest client there is, on one kept-alive connection: what is measured is the server, not an SDK."""

    def __init__(self, server: Server):
        self.connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120)
        self.headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None):
        self.connection.request(method, "/v1" + path, json.dumps(body or {}), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, f"{method} {path}: {answer.status} {text[:500]!r}"
        return json.loads(text) if text else None

    def create(self) -> dict:
        return self.call("POST", "/sandboxes", {"template": TEMPLATE, "ttl_seconds": 3600})

    def context(self, sandbox: str) -> str:
        return self.call("POST", f"/sandboxes/{sandbox}/repl/sessions")["id"]

    def close_context(self, sandbox: str, context: str) -> None:
        self.call("DELETE", f"/sandboxes/{sandbox}/repl/sessions/{context}")

    def run(self, sandbox: str, context: str, code: str, **fields: object) -> dict:
        return self.call("POST", f"/sandboxes/{sandbox}/repl/sessions/{context}/run", {"code": code, **fields})

    def stream(self, sandbox: str, context: str, code: str, **fields: object) -> int:
        """Runs a cell as an event stream and returns the bytes of the stream."""
        path = f"/v1/sandboxes/{sandbox}/repl/sessions/{context}/run"
        headers = self.headers | {"Accept": "text/event-stream"}
        self.connection.request("POST", path, json.dumps({"code": code, **fields}), headers)
        answer = self.connection.getresponse()
        assert answer.status == 200, answer.read()[:500]
        buffer, total, last = bytearray(1 << 20), 0, b""
        while count := answer.readinto(buffer):
            total += count
            last = (last + buffer[:count])[-2000:]
        assert b'"status":"ok"' in last, last
        return total

    def kill(self, sandbox: str) -> None:
        self.call("DELETE", f"/sandboxes/{sandbox}")


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def in_turns(count: int, *actions: Callable[[], object | None]) -> list[list[float]]:
    """Samples of each action, taken in turns. An action that returns a float has measured itself."""
    samples: list[list[float]] = [[] for _ in actions]
    for _ in range(count):
        for action, into in zip(actions, samples, strict=True):
            started = time.perf_counter()
            own = action()
            into.append(own if isinstance(own, float) else time.perf_counter() - started)
    return samples


@dataclass
class Row:
    """One number, its yardstick, and the ratio or bound it is held to."""

    name: str
    value: Summary
    yardstick_name: str = ""
    yardstick: Summary | None = None
    most_ratio: float | None = None
    most_ms: float | None = None

    @property
    def ratio(self) -> float | None:
        return round(self.value.p50 / self.yardstick.p50, 3) if self.yardstick else None

    @property
    def more(self) -> float | None:
        """Milliseconds beyond the yardstick."""
        return round(self.value.p50 - self.yardstick.p50, 3) if self.yardstick else None

    @property
    def met(self) -> bool | None:
        if self.most_ms is not None:
            return self.value.p50 <= self.most_ms
        if self.most_ratio is not None and self.ratio is not None:
            return self.ratio <= self.most_ratio
        return None

    @property
    def goal(self) -> str:
        if self.most_ms is not None:
            return f"<= {self.most_ms:g} ms"
        return f"<= {self.most_ratio:g} x {self.yardstick_name}" if self.most_ratio is not None else ""

    def as_json(self) -> dict:
        return {
            "name": self.name,
            "milliseconds": self.value.as_json(),
            "yardstick": self.yardstick and {"name": self.yardstick_name, "milliseconds": self.yardstick.as_json()},
            "ratio_of_p50": self.ratio,
            "more_of_p50": self.more,
            "goal": self.goal,
            "met": self.met,
        }


@dataclass
class Quantity:
    """A number that is no latency, and the bound it is held to."""

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def met(self) -> bool | None:
        if self.least is not None:
            return self.value >= self.least
        return None if self.most is None else self.value <= self.most

    @property
    def goal(self) -> str:
        if self.least is not None:
            return f">= {self.least:g}"
        return "" if self.most is None else f"<= {self.most:g}"

    def as_json(self) -> dict:
        return {"name": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "met": self.met}


@contextlib.contextmanager
def server_over(data_dir: Path, pool_size: int, *arguments: str) -> Iterator[Server]:
    os.environ["PANDASTACK_TEST_DATA"] = str(data_dir)
    with tempfile.TemporaryDirectory(prefix="pandastack-bench-") as root:
        server = Server(Path(root) / "server", *arguments, pool_size=pool_size).start()
        try:
            yield server
        finally:
            server.stop()
