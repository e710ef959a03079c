"""The process that every code context is a fork of.

It imports what contexts will want, then waits on a Unix socket for the agent to ask for forks. It has one thread and runs no user code.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import linecache
import os
import select
import signal
import socket
import sys
import time
import warnings
from typing import Any

from IPython.core import async_helpers

from . import context, figures, tables
from .channel import Channel, ChannelClosed, Message
from .reseed import before_freeze, reseed, track


def main(arguments: list[str] | None = None) -> int:
    """Warms up, then serves forks until the agent closes the socket."""
    parser = argparse.ArgumentParser(prog="zygote", description=__doc__)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--warm-import", action="append", default=[])
    options = parser.parse_args(arguments)
    started = time.monotonic()
    # Contexts make themselves interruptible; the zygote must survive an interrupt meant for a terminal's foreground group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=options.control_fd)
    control.set_inheritable(False)
    shell = warm(options.warm_import)
    Zygote(Channel(control), shell).serve(time.monotonic() - started)
    return 0


#: pyarrow's allocator starts a thread when it is loaded, which no fork would have; it reads this variable then.
_NO_ALLOCATOR_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


def warm(modules: list[str]) -> Any:
    """Imports modules, builds the shell and uses it once, leaving no trace that user code could see."""
    track()
    _hide_own_start()
    figures.choose_backend()
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    from .shell import build

    shell = build()
    os.environ.update(_NO_ALLOCATOR_THREAD)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            # A template may list what a smaller one lacks; its contexts then import on their own.
            print(f"warm import of {name} failed: {type(error).__name__}: {error}", file=sys.stderr)
    for name in _NO_ALLOCATOR_THREAD:
        del os.environ[name]
    tables.prepare()
    _use_once(shell)
    _forget_use(shell)
    _end_library_threads()
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*", category=DeprecationWarning)
    before_freeze()
    gc.collect()
    # Objects of before the forks are never collected: a collection would write to, and so copy, every page of them.
    gc.freeze()
    return shell


_WARM_CELLS = ("1 + 1", "raise ValueError('warm')", "!true", "import asyncio as _a\nawait _a.sleep(0)")


def _use_once(shell: Any) -> None:
    for code in _WARM_CELLS:
        shell.run_cell(code, store_history=False)
    _draw_once()
    # The first call makes OpenSSL read its configuration, which takes longer than the fork itself.
    reseed()
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        shell.display_formatter.format(pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}))


def _forget_use(shell: Any) -> None:
    """Leaves no trace of the cells above, and no event loop: a fork would share its descriptors with its siblings."""
    shell.reset(new_session=True)
    # As in a new shell: the reset took them away with the results that they stood for.
    shell.user_ns.update({"_": "", "__": "", "___": ""})
    shell.last_error = None
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    linecache.clearcache()
    if async_helpers._asyncio_event_loop is not None:
        async_helpers._asyncio_event_loop.close()
        async_helpers._asyncio_event_loop = None
    figures.hide_backend_variable()


def _end_library_threads() -> None:
    """OpenBLAS stops its threads at a fork and starts them when it needs them again, so one fork leaves the zygote with one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _hide_own_start() -> None:
    """Takes out of the environment and the module path what only served to start this process."""
    if sys.path and sys.path[0] == os.getcwd():
        del sys.path[0]
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    others = [path for path in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if path and os.path.abspath(path) != own]
    if others:
        os.environ["PYTHONPATH"] = os.pathsep.join(others)


def _draw_once() -> None:
    """Font lookup and the first draw cost a second."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    figures.begin(lambda _bundle: None)
    figure, axes = pyplot.subplots()
    axes.plot([1, 2, 3])
    axes.set_title("warm")
    figures.flush()
    figures.begin(lambda _bundle: None)
    del figure, axes


class Zygote:
    """The loop that forks and reaps."""

    def __init__(self, control: Channel, shell: Any) -> None:
        self._control = control
        self._shell = shell
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)

    def serve(self, seconds: float) -> None:
        """Answers until the control socket closes."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._control.send({"op": "ready", "seconds": round(seconds, 3)})
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        try:
            while True:
                ready = {fd for fd, _events in poll.poll()}
                if self._wake_read in ready:
                    self._drain_wakeups()
                    self._reap()
                if self._control.fileno() in ready:
                    self._answer(*self._control.receive())
        except ChannelClosed:
            return

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_read, 512):
                pass
        except BlockingIOError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            self._control.send({"op": "exited", "pid": pid, "exit_code": code, "signal": signal_number})

    def _answer(self, message: Message, fds: list[int]) -> None:
        context_id = message.get("context_id")
        try:
            if message.get("op") != "fork" or len(fds) != 3:
                raise ValueError("expected a fork with three descriptors")
            pid = self._fork(message, fds)
        except (OSError, ValueError) as error:
            self._control.send({"op": "fork_failed", "context_id": context_id, "message": str(error)})
        else:
            self._control.send({"op": "forked", "context_id": context_id, "pid": pid})
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, message: Message, fds: list[int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            self._become_context(message, fds)
            code = 0
        except BaseException as error:
            os.write(2, f"the context ended: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)

    def _become_context(self, message: Message, fds: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        self._control.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        context.start(self._shell, message, fds)


if __name__ == "__main__":
    # The module under its real name: `__main__` becomes the namespace of user code.
    from pandastack_interpreter import zygote

    sys.exit(zygote.main())
