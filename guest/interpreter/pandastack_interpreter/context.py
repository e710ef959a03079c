"""One code context: a process that runs cells one after another."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading

from IPython.core import async_helpers

from . import figures, forks, ownership, patches
from .bundles import MAX_TEXT
from .channel import Channel, ChannelClosed, Message
from .interrupts import Interrupts
from .languages import drive
from .memory import MemoryLimit
from .output import Output
from .reseed import reseed
from .shell import Event, Shell
from .source import unfenced
from .stdin import StandardInput
from .tracebacks import traceback_of

#: The agent's word for how much one context may have; taken out of the environment before user code sees it.
MEMORY_LIMIT = "PANDASTACK_MEMORY_LIMIT_BYTES"
PYTHON = "python"
_FENCE_NAMES = ("python", "python3", "py", "ipython", "ipython3")
#: Events that must come after the text before them and before the text after them.
_IN_PLACE = ("display", "clear")
#: The channel lives above the descriptors that user code deals with.
_HIGH_FD = 710


class Context:
    """The process after its fork from the zygote."""

    def __init__(self, shell: Shell, channel: socket.socket, memory: MemoryLimit) -> None:
        self._shell = shell
        self._memory = memory
        self._interrupts = Interrupts()
        self._channel = Channel(channel, self._interrupts, read_ahead=True)
        self._output = Output(self._send_late)
        #: A result is at the end of its cell: it travels with what comes next.
        self._held: list[Event] = []
        self._is_child = False

    def serve(self, language: str) -> None:
        """Runs cells until the agent closes the channel. What is Python's may become another language's before its first cell."""
        ownership.install()
        patches.install(self._output.flush)
        forks.bound()
        patches.allow_reading_input(self._shell.user_ns)
        os.register_at_fork(after_in_child=self._become_child)
        self._shell.before_error = self._memory.open_reserve
        self._shell.muted = self._interrupts.muted
        self._shell.events.register("post_execute", self._show_figures)
        self._prepare()
        self._channel.send({"op": "hello", "pid": os.getpid()})
        if language != PYTHON:
            drive(language, self._channel, self._memory.limit)
            return
        while True:
            self._run_tasks_until_called()
            try:
                message, _fds = self._channel.receive()
            except ChannelClosed:
                return
            if message.get("op") == "run":
                self._memory.impose()
                self._run(message)
                self._prepare()
            elif message.get("op") == "reseed":
                reseed()
            elif message.get("op") == "assign":
                _assign(message)
                if _language(message) != PYTHON:
                    drive(_language(message), self._channel, self._memory.limit)
                    return

    def _run_tasks_until_called(self) -> None:
        """Tasks that cells have left go on until the agent says something."""
        if _pending_tasks() == 0 or self._channel.has_read_ahead():
            return
        loop = async_helpers.get_asyncio_loop()
        called = loop.create_future()
        loop.add_reader(self._channel.fileno(), lambda: called.done() or called.set_result(None))
        while not called.done():
            try:
                loop.run_until_complete(called)
            except BaseException as error:
                # A task that exits ends the loop's run, and nothing else.
                sys.stderr.write(f"{type(error).__name__} in a task of an earlier cell\n")
        loop.remove_reader(self._channel.fileno())

    def _prepare(self) -> None:
        """Puts right what a cell may have left behind. After the cell's answer is out, for under gVisor each of these system calls costs
        0.1 ms.
        """
        self._output.repair()
        self._interrupts.install()
        self._memory.begin()
        # asyncio.run leaves none behind, and code in the style of get_event_loop().run_until_complete(...) wants one.
        asyncio.set_event_loop(async_helpers.get_asyncio_loop())

    def _run(self, message: Message) -> None:
        cell = int(message["cell"])
        ownership.begin(cell)
        forks.begin()
        self._held.clear()
        if message.get("reseed"):
            reseed()
        self._shell.sink = self._tell
        self._shell.last_error = None
        self._shell.max_chars = max(0, int(message.get("max_chars") or 0))
        figures.begin(lambda data: self._shell.display_pub.publish(data=data))
        error: BaseException | None = None
        try:
            try:
                with _Place(message.get("env") or {}, message.get("cwd") or ""), StandardInput(message.get("stdin")):
                    error = self._execute(str(message.get("code", "")))
            finally:
                self._interrupts.end()
        except BaseException as failure:
            # Also an interrupt that hits between two lines of ours.
            error = failure
        self._finish(cell, error)

    def _execute(self, code: str) -> BaseException | None:
        self._interrupts.begin()
        result = self._shell.run_cell(unfenced(code, _FENCE_NAMES), store_history=True)
        return result.error_before_exec or result.error_in_exec

    def _show_figures(self) -> None:
        # Called by IPython after every cell, also after the inner one of `%%capture`, whatever became of it.
        try:
            figures.flush()
        except KeyboardInterrupt as error:
            # IPython would only print it. A picture of a cell that is interrupted already may be lost.
            if self._shell.last_error is None:
                self._shell.tell_error(error)
        except Exception as error:
            self._shell.tell_error(error, traceback_of(error))

    def _finish(self, cell: int, error: BaseException | None) -> None:
        self._memory.open_reserve(error)
        if error is not None and self._shell.last_error is None:
            self._shell.tell_error(error)
        # Copies of results for a history that nobody can read.
        self._shell.history_manager.outputs.clear()
        failed = self._shell.last_error is not None
        code = exit_code(error) if failed else 0
        if self._is_child:
            self._output.flush()
            os._exit(code & 0xFF)
        self._send(
            cell,
            {
                "op": "end",
                "status": "error" if failed else "ok",
                "exit_code": code,
                "execution_count": max(0, self._shell.execution_count - 1),
                "threads": ownership.working_threads(),
                "tasks": _pending_tasks(),
            },
        )

    def _tell(self, event: Event) -> None:
        """Sends what the shell says. What a thread or task shows when its cell is over is late text that stands for it."""
        cell = ownership.of_this_thread()
        if event["op"] == "display" and (cell != ownership.current() or not self._interrupts.is_running()):
            data = event["data"]
            self._send_late("stdout", cell, data.get("text/plain", f"[{', '.join(data)}]") + "\n")
        else:
            self._send(cell, event)

    def _send(self, cell: int, event: Event) -> None:
        # What was written before must be in the pipes before the event is on the channel: the agent reads them in that order.
        self._output.flush()
        event = {**event, "cell": cell}
        if event["op"] == "result":
            self._held.append(event)
            return
        held, self._held = self._held, []
        if event["op"] in _IN_PLACE and self._is_cells_own_thread():
            self._channel.send_and_sync(*held, event)
        else:
            self._channel.send(*held, event)

    def _is_cells_own_thread(self) -> bool:
        """Whether nobody else can be receiving on the channel."""
        return self._interrupts.is_running() and threading.current_thread() is threading.main_thread()

    def _send_late(self, stream: str, cell: int, text: str) -> None:
        for start in range(0, len(text), MAX_TEXT):
            self._channel.send({"op": "stream", "name": stream, "text": text[start : start + MAX_TEXT], "cell": cell})

    def _become_child(self) -> None:
        # A process that user code forked must not answer in its parent's place: it prints, and ends with its cell.
        self._is_child = True
        self._channel.close()
        ownership.forget()
        self._shell.sink = _print_event
        self._shell.is_copy = True


def _print_event(event: Event) -> None:
    if event["op"] in ("result", "display"):
        sys.stdout.write(event["data"].get("text/plain", "") + "\n")
    elif event["op"] == "error" and event["name"] != "SystemExit":
        sys.stderr.write(event["traceback"] + "\n")


class _Place:
    """Environment and working directory of one cell, put back after it."""

    def __init__(self, env: dict[str, str], cwd: str) -> None:
        self._env = env
        self._cwd = cwd

    def __enter__(self) -> None:
        self._before: int | None = None
        if self._cwd:
            # By descriptor: the directory may have no name any more, now or then.
            self._before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
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
            os.fchdir(self._before)
            os.close(self._before)


def exit_code(error: BaseException | None) -> int:
    """The code of a SystemExit, 1 for any other exception and for a code that is no 32-bit number."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return int(error.code) if isinstance(error.code, int) and -(2**31) <= error.code < 2**31 else 1


def _pending_tasks() -> int:
    # The loop that runs cells with a top-level await; those of asyncio.run are gone when it returns.
    loop = async_helpers._asyncio_event_loop
    return 0 if loop is None or loop.is_closed() else len(asyncio.all_tasks(loop))


def start(shell: Shell, request: Message, fds: list[int]) -> None:
    """Turns a fresh fork of the zygote into a context and serves until its end. Never returns normally to the zygote."""
    channel_fd, stdout_fd, stderr_fd = fds
    os.setsid()
    _place_descriptors(stdout_fd, stderr_fd)
    channel = _move_high(channel_fd)
    for name in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL if name != signal.SIGPIPE else signal.SIG_IGN)
    memory = _environment(request)
    reseed()
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")
    Context(shell, channel, memory).serve(_language(request))


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


def _enter(directory: str) -> str:
    """Goes to a directory. The agent has checked it; but code may have removed it by the time that a context is replaced."""
    try:
        os.chdir(directory)
    except OSError:
        directory = "/"
        os.chdir(directory)
    return directory


def _assign(message: Message) -> None:
    """A process that was forked ahead of time becomes a context's."""
    os.environ.update(message.get("env") or {})
    os.environ.pop(MEMORY_LIMIT, None)
    os.environ["PWD"] = _enter(message.get("cwd") or os.getcwd())


def _environment(request: Message) -> MemoryLimit:
    os.environ.update(request.get("env") or {})
    limit = os.environ.pop(MEMORY_LIMIT, "")
    os.environ["PWD"] = _enter(request.get("cwd") or os.getcwd())
    return MemoryLimit(int(limit) if limit.isdigit() else None)


def _language(message: Message) -> str:
    return message.get("language") or PYTHON
