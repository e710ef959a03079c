"""One code context: a process that runs cells one after another."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
import threading
import warnings
from typing import Any

from . import figures, ownership, patches
from .bundles import to_wire
from .channel import Channel, ChannelClosed, Message
from .interrupts import Interrupts
from .output import Output
from .reseed import reseed
from .shell import Event, Shell

#: The agent's word for how much one context may have; taken out of the environment before user code sees it.
MEMORY_LIMIT = "PANDASTACK_MEMORY_LIMIT_BYTES"
#: The channel lives above the descriptors that user code deals with.
_HIGH_FD = 710


class Context:
    """The process after its fork from the zygote."""

    def __init__(self, shell: Shell, channel: socket.socket) -> None:
        self._shell = shell
        self._interrupts = Interrupts()
        self._channel = Channel(channel, self._interrupts)
        self._output = Output(self._send_late)
        self._output.replace()

    def serve(self) -> None:
        """Runs cells until the agent closes the channel."""
        ownership.install()
        patches.install()
        self._interrupts.install()
        self._channel.send({"op": "hello", "pid": os.getpid()})
        while True:
            try:
                message, _fds = self._channel.receive()
            except ChannelClosed:
                return
            if message.get("op") == "run":
                self._run(message)

    def _run(self, message: Message) -> None:
        cell = int(message["cell"])
        ownership.begin(cell)
        self._output.repair()
        self._interrupts.install()
        self._shell.sink = lambda event: self._send(ownership.of_this_thread(), event)
        figures.begin(lambda data: self._shell.emit(_display(data)))
        status, code = "error", 1
        try:
            try:
                with _Place(message.get("env") or {}, message.get("cwd") or ""):
                    status, code = self._execute(str(message["code"]))
            finally:
                self._interrupts.end()
                self._show_figures()
        except BaseException as error:
            # Also an interrupt that hits between two lines of ours.
            self._shell.tell_error(type(error), error)
        self._finish(cell, status, code)

    def _execute(self, code: str) -> tuple[str, int]:
        shell = self._shell
        shell.last_error = None
        self._interrupts.begin()
        result = shell.run_cell(clean(code), store_history=True)
        self._interrupts.end()
        error = result.error_before_exec or result.error_in_exec
        if error is None and result.success:
            return "ok", 0
        if shell.last_error is None and error is not None:
            shell.tell_error(type(error), error)
        return "error", exit_code(error)

    def _show_figures(self) -> None:
        try:
            figures.flush()
        except Exception as error:
            print(f"a figure could not be drawn: {type(error).__name__}: {error}", file=sys.stderr)

    def _finish(self, cell: int, status: str, code: int) -> None:
        count = self._shell.execution_count - 1
        self._send(
            cell,
            {
                "op": "end",
                "status": status,
                "exit_code": code,
                "execution_count": max(0, count),
                "threads": _other_threads(),
                "tasks": _pending_tasks(),
            },
        )

    def _send(self, cell: int, event: Event) -> None:
        # What was written before must be in the pipes before the event is on the channel: the agent reads them in that order.
        self._output.flush()
        self._channel.send({**event, "cell": cell})

    def _send_late(self, stream: str, cell: int, text: str) -> None:
        self._channel.send({"op": "stream", "name": stream, "text": text, "cell": cell})


class _Place:
    """Environment and working directory of one cell, put back after it."""

    def __init__(self, env: dict[str, str], cwd: str) -> None:
        self._env = env
        self._cwd = cwd

    def __enter__(self) -> None:
        self._before = os.getcwd() if self._cwd else None
        if self._cwd:
            os.chdir(self._cwd)
        self._old = {name: os.environ.get(name) for name in self._env}
        os.environ.update(self._env)

    def __exit__(self, *_: object) -> None:
        for name, value in self._old.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._before is not None:
            os.chdir(self._before)


def clean(code: str) -> str:
    """Takes off what models put around code: a byte order mark and a fence around all of it."""
    code = code.removeprefix("\ufeff")
    lines = code.strip().splitlines()
    if len(lines) >= 2 and lines[0].strip().lower() in ("```", "```python", "```py") and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1]) + "\n"
    return code


def exit_code(error: BaseException | None) -> int:
    """0 to 255 of a SystemExit, 1 for any other exception."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _display(data: dict[str, Any]) -> Event:
    return {"op": "display", "data": to_wire(data), "display_id": None, "update": False}


def _other_threads() -> int:
    main = threading.main_thread()
    return sum(
        1 for thread in threading.enumerate() if thread is not main and not ownership.is_script_magic_thread(thread)
    )


def _pending_tasks() -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop = asyncio.get_event_loop_policy().get_event_loop()
        return len(asyncio.all_tasks(loop))
    except Exception:
        return 0


def start(shell: Shell, request: Message, fds: list[int]) -> None:
    """Turns a fresh fork of the zygote into a context and serves until its end. Never returns normally to the zygote."""
    channel_fd, stdout_fd, stderr_fd = fds
    os.setsid()
    _place_descriptors(stdout_fd, stderr_fd)
    channel = _move_high(channel_fd)
    for name in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL if name != signal.SIGPIPE else signal.SIG_IGN)
    _environment(request)
    reseed()
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")
    Context(shell, channel).serve()


def _place_descriptors(stdout_fd: int, stderr_fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((null, 0), (stdout_fd, 1), (stderr_fd, 2)):
        os.dup2(fd, place)
        os.close(fd)


def _move_high(fd: int) -> socket.socket:
    import fcntl

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    os.close(fd)
    return socket.socket(fileno=high)


def _environment(request: Message) -> None:
    os.environ.update(request.get("env") or {})
    limit = os.environ.pop(MEMORY_LIMIT, "")
    cwd = request.get("cwd") or os.getcwd()
    os.chdir(cwd)
    os.environ["PWD"] = cwd
    if limit.isdigit():
        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
