"""A context of another language: this process stands between the agent and the language's own interpreter, its child.

The child shares descriptors 1 and 2, so its output goes to the agent in order, and the process group, so interrupts reach what it runs
in the foreground. Cells go to it through one pipe; what it has to say about them comes back through another, each report ended by NUL.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from ..bundles import MAX_NAME, MAX_TEXT, cut, to_wire
from ..channel import MAX_MESSAGE, Channel, ChannelClosed, Message
from ..source import unfenced
from ..stdin import descriptor_of

Report = dict[str, Any]

_LONGEST_READ = 64 * 1024
#: After a child's end: more than a pipe holds.
_MOST_LAST_READS = 1024
#: What the agent's message has room for.
_MOST_TASKS = 2**32 - 1
#: A child that an interrupt ends while it starts is started again, this often for one cell.
_MOST_STARTS = 8


@dataclass
class Cell:
    """What a child is asked to run."""

    number: int
    code: str
    env: dict[str, str] = field(default_factory=dict)
    #: Directory for this cell alone, empty for none.
    cwd: str = ""
    #: A file with the cell's standard input; `None` for the end of file at once.
    stdin: str | None = None
    #: The sandbox is a copy: random numbers must not be its siblings'.
    reseed: bool = False


class Language(ABC):
    """How one language's interpreter is started, asked and understood."""

    #: What models call it in a fence around code.
    names: ClassVar[tuple[str, ...]]

    def __init__(self, memory_limit: int | None) -> None:
        self.memory_limit = memory_limit

    @abstractmethod
    def command(self, requests: int, reports: int) -> list[str]:
        """Starts the interpreter. It reads requests from one descriptor and writes reports to the other, the first being ``ready``."""

    @abstractmethod
    def request(self, cell: Cell) -> bytes:
        """What makes the interpreter run a cell. Raises ``ValueError`` if it cannot take it."""

    @abstractmethod
    def reports(self, data: bytes) -> Iterable[Report]:
        """What one report says: messages of the wire contract, and the driver's own.

        ``ready``; ``end`` with ``exit_code`` and, if the cell failed, ``error`` (name, value, traceback); ``leaving``, before it ends, with
        ``restore``, the request that gives its successor what it knew, and whether it was ``interrupted``.
        """

    def reseed(self) -> bytes:
        """What makes the interpreter reseed its generators between two cells, where something else may draw from them."""
        return b""

    def interrupt(self) -> bytes:
        """What is sent to the interpreter besides the signal."""
        return b""


class Driver:
    """The loop between the agent and the child."""

    def __init__(self, language: Language, channel: Channel) -> None:
        self._language = language
        self._channel = channel
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self._child: _Child | None = None
        self._starts = 0
        #: What a successor of the child is told first.
        self._restore: bytes | None = None
        self._cell: Cell | None = None
        self._stdin: int | None = None
        self._count = 0
        #: The next cell must.
        self._reseeds = False

    def serve(self) -> None:
        """Runs cells until the agent closes the channel."""
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._start()
        with contextlib.suppress(ChannelClosed):
            while True:
                self._turn()

    def _turn(self) -> None:
        if self._is_idle() and self._channel.has_read_ahead():
            self._take()
        ready = self._wait()
        child = self._child
        if child is not None and child.requests in ready:
            child.write()
        if child is not None and child.reports in ready:
            self._hear(child)
        if self._wake_read in ready:
            self._handle_signals()
        if self._channel.fileno() in ready and self._is_idle():
            self._take()

    def _is_idle(self) -> bool:
        return self._cell is None and self._child is not None

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._is_idle():
            poll.register(self._channel.fileno(), select.POLLIN)
        if self._child is not None:
            if not self._child.is_mute:
                poll.register(self._child.reports, select.POLLIN)
            if self._child.unsent:
                poll.register(self._child.requests, select.POLLOUT)
        return {fd for fd, _events in poll.poll()}

    def _start(self) -> None:
        self._starts += 1
        self._child = _Child(self._language)
        if self._restore is not None:
            self._child.send(self._restore)

    def _take(self) -> None:
        message, _fds = self._channel.receive()
        if self._child is None:
            return
        if message.get("op") == "reseed":
            self._reseeds = True
            self._child.send(self._language.reseed())
        if message.get("op") != "run":
            return
        cell = self._cell_of(message)
        self._cell, self._starts = cell, 0
        self._count += 1
        try:
            self._child.send(self._language.request(cell))
        except ValueError as error:
            self._end({"exit_code": 1, "error": {"name": "ValueError", "value": str(error), "traceback": f"ValueError: {error}"}})

    def _cell_of(self, message: Message) -> Cell:
        stdin = message.get("stdin")
        if stdin is not None:
            self._stdin = descriptor_of(str(stdin))
        return Cell(
            number=int(message["cell"]),
            code=unfenced(str(message.get("code", "")), self._language.names),
            env={str(name): str(value) for name, value in (message.get("env") or {}).items()},
            cwd=str(message.get("cwd") or ""),
            stdin=None if self._stdin is None else f"/proc/{os.getpid()}/fd/{self._stdin}",
            reseed=self._takes_reseed() or bool(message.get("reseed")),
        )

    def _takes_reseed(self) -> bool:
        reseeds, self._reseeds = self._reseeds, False
        return reseeds

    def _hear(self, child: _Child) -> bool:
        """Takes reports. False if nothing was there."""
        before = child.bytes_read
        for data in child.read():
            for report in self._language.reports(data):
                # Whatever runs in the child can write reports of its own.
                with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                    self._report(child, report)
        return child.bytes_read > before

    def _report(self, child: _Child, report: Report) -> None:
        kind = report.get("op")
        if kind == "ready":
            child.is_ready = True
        elif kind == "leaving":
            child.is_leaving, child.was_interrupted = True, report["interrupted"]
            self._restore = report["restore"]
        elif kind == "end":
            self._end(report)
        else:
            self._send(report)

    def _end(self, report: Report) -> None:
        cell, code, tasks = self._cell, int(report["exit_code"]), int(report.get("tasks", 0))
        if cell is None:
            return
        error = report.get("error")
        if error is not None:
            self._send({**error, "op": "error", "cell": cell.number})
        self._cell = None
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        self._channel.send(
            {
                "op": "end",
                "cell": cell.number,
                "status": "ok" if error is None else "error",
                "exit_code": code,
                "execution_count": self._count,
                "threads": 0,
                "tasks": max(0, min(tasks, _MOST_TASKS)),
            }
        )

    def _send(self, event: Report) -> None:
        checked = _checked(event, self._count if self._cell is None else self._cell.number)
        if checked is not None:
            self._channel.send(checked)

    def _handle_signals(self) -> None:
        numbers: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            while woken := os.read(self._wake_read, 512):
                numbers.update(woken)
        if signal.SIGINT in numbers and self._cell is not None:
            self._interrupt()
        if signal.SIGCHLD in numbers:
            self._look_after_child()

    def _interrupt(self) -> None:
        if self._child is None:
            return
        if not self._child.is_ready:
            # It may not even have installed its handler; nothing is lost with it.
            self._child.process.kill()
        else:
            self._child.send(self._language.interrupt())

    def _look_after_child(self) -> None:
        child = self._child
        if child is None or child.process.poll() is None:
            return
        for _ in range(_MOST_LAST_READS):
            if not self._hear(child):
                break
        child.close()
        self._child = None
        if child.is_leaving:
            code = shell_code(child.process.returncode)
            self._end({"exit_code": code, "error": interruption() if child.was_interrupted else exit_error(code)})
        elif not child.is_ready and child.process.returncode in (-signal.SIGINT, -signal.SIGKILL) and self._starts < _MOST_STARTS:
            self._end({"exit_code": 128 + signal.SIGINT, "error": interruption()})
        else:
            _die_as(child.process.returncode)
        self._start()


class _Child:
    """A running interpreter and the pipes to and from it."""

    def __init__(self, language: Language) -> None:
        requests, self.requests = os.pipe()
        self.reports, reports = os.pipe()
        try:
            self.process = subprocess.Popen(
                language.command(requests, reports), stdin=subprocess.DEVNULL, pass_fds=(requests, reports), restore_signals=True
            )
        finally:
            os.close(requests)
            os.close(reports)
        for fd in (self.requests, self.reports):
            os.set_blocking(fd, False)
        self.unsent = bytearray()
        self.is_ready = False
        #: It has handed its state over and will end.
        self.is_leaving = False
        self.was_interrupted = False
        #: It has closed its end of the reports; its own end is to follow.
        self.is_mute = False
        self.bytes_read = 0
        self._unread = bytearray()

    def send(self, data: bytes) -> None:
        """Writes to the child, now or when it reads."""
        self.unsent += data
        self.write()

    def write(self) -> None:
        """Writes what it takes now. That it is dead is noticed elsewhere."""
        try:
            while self.unsent:
                del self.unsent[: os.write(self.requests, self.unsent)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.unsent.clear()

    def read(self) -> list[bytes]:
        """Some of the reports that are there, for a flood of them must not keep signals waiting. One that is too long is void."""
        try:
            data = os.read(self.reports, _LONGEST_READ)
        except BlockingIOError:
            return []
        self.bytes_read += len(data)
        self.is_mute = not data
        first, *others = data.split(b"\0")
        self._unread += first
        reports = []
        for following in others:
            reports.append(bytes(self._unread))
            self._unread = bytearray(following)
        if len(self._unread) > MAX_MESSAGE:
            self._unread.clear()
        return reports

    def close(self) -> None:
        """Closes the pipes."""
        os.close(self.requests)
        os.close(self.reports)


def interruption() -> dict[str, str]:
    """The error of a cell that was interrupted."""
    return {"name": "KeyboardInterrupt", "value": "", "traceback": "KeyboardInterrupt"}


def exit_error(code: int) -> dict[str, str] | None:
    """The error of a cell that ended with a status other than 0."""
    if code == 0:
        return None
    value = f"exit status {code}"
    return {"name": "ExitStatus", "value": value, "traceback": f"ExitStatus: {value}"}


def shell_code(returncode: int) -> int:
    """The exit status that a shell gives for what ``subprocess`` says."""
    return returncode if returncode >= 0 else 128 - returncode


def _checked(event: Report, cell: int) -> Message | None:
    """A message of the wire contract made of what the child says, which may be anything."""
    kind = event.get("op")
    number = event.get("cell")
    message: Message = {"op": kind, "cell": number if isinstance(number, int) and number >= 0 else cell}
    if kind in ("result", "display"):
        data = event.get("data")
        bundle = to_wire(data) if isinstance(data, dict) else {}
        if not bundle:
            return None
        message["data"] = bundle
        if kind == "display":
            display_id = event.get("display_id")
            message["display_id"] = None if display_id is None else cut(str(display_id), MAX_NAME)
            message["update"] = bool(event.get("update"))
    elif kind == "clear":
        message["wait"] = bool(event.get("wait"))
    elif kind == "stream":
        message |= {"name": "stderr" if event.get("name") == "stderr" else "stdout", "text": cut(str(event.get("text", "")), MAX_TEXT)}
    elif kind == "error":
        for name, limit in (("name", MAX_NAME), ("value", MAX_TEXT), ("traceback", MAX_TEXT)):
            message[name] = cut(str(event.get(name, "")), limit)
    else:
        return None
    return message


def _die_as(returncode: int) -> NoReturn:
    """Ends this process as its child ended, so that the agent tells the truth about it."""
    if returncode < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            # Two signals have no handler that could be reset.
            signal.signal(-returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -returncode)
    os._exit(shell_code(returncode))
