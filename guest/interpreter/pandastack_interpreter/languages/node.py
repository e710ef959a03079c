"""Node.js: the cell is evaluated as its REPL would, in ``node_context.cjs``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .driver import Cell, Language, Report

_PROGRAM = Path(__file__).with_name("node_context.cjs")
_MEBIBYTE = 1024 * 1024
#: The parser that Node.js brings along is one of its internals.
_FLAGS = ["--expose-internals"]


class Node(Language):
    """The driver's knowledge of Node.js. Requests and reports are JSON."""

    names = ("javascript", "js", "node", "mjs")

    def command(self, requests: int, reports: int) -> list[str]:
        """Starts it with its heap bounded; its address space cannot be, for it reserves much more than it uses."""
        heap = [] if self.memory_limit is None else [f"--max-old-space-size={max(1, self.memory_limit // _MEBIBYTE)}"]
        return ["node", *_FLAGS, *heap, str(_PROGRAM), str(requests), str(reports)]

    def request(self, cell: Cell) -> bytes:
        """A cell as one line."""
        return _line({"op": "run", **vars(cell)})

    def reseed(self) -> bytes:
        """Its own word, which it understands between two cells."""
        return _line({"op": "reseed"})

    def interrupt(self) -> bytes:
        """The signal does not reach a loop of JavaScript."""
        return _line({"op": "interrupt"})

    def reports(self, data: bytes) -> Iterable[Report]:
        """One message, as it is."""
        try:
            report = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(report, dict) and report.get("op") != "leaving":
            yield report


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"
