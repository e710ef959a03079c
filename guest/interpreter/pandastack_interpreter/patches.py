"""Changes to the standard library: what waits for a person fails at once, and text keeps its place among that of child processes."""

from __future__ import annotations

import asyncio
import builtins
import functools
import getpass
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from IPython.core import async_helpers, interactiveshell
from IPython.core.error import StdinNotImplementedError

from . import stdin

_read_line = builtins.input


def install(flush: Callable[[], None]) -> None:
    """Applies all of them. ``flush`` puts what was printed so far on the pipes."""
    builtins.input = _input
    getpass.getpass = _getpass
    sys.breakpointhook = _breakpoint
    _flush_before_children(flush)
    _explain_running_loop()
    _start_tasks_without_a_running_loop()


def allow_reading_input(namespace: dict[str, Any]) -> None:
    """Lets ``open(0)``, which IPython refuses, read a cell's standard input; now and when the namespace is reset."""
    refusing = interactiveshell._modified_open

    @functools.wraps(refusing)
    def open_file(file: Any, *args: Any, **options: Any) -> Any:
        if stdin.is_given() and type(file) is int and file == 0:
            return open(file, *args, **options)
        return refusing(file, *args, **options)

    interactiveshell._modified_open = namespace["open"] = open_file


def _require_input() -> None:
    if not stdin.is_given():
        raise StdinNotImplementedError(
            "input is not available: this code runs without a terminal; pass values in the code, or give the run a standard input"
        )


def _input(prompt: object = "", /) -> str:
    """``input``, for a cell that was given a standard input."""
    _require_input()
    return _read_line(prompt)


def _getpass(prompt: str = "Password: ", stream: Any = None, **_options: Any) -> str:
    """``getpass.getpass``: a line of the cell's standard input."""
    _require_input()
    print(prompt, end="", file=stream or sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError("EOF when reading a line")
    return line.rstrip("\n")


def _breakpoint(*_args: Any, **_options: Any) -> None:
    """``breakpoint``: commands come from the cell's standard input, and its end is the debugger's."""
    if not stdin.is_given():
        raise RuntimeError("a debugger needs a terminal; this code runs without one")
    import pdb

    pdb.Pdb().set_trace(sys._getframe(1))


def _flush_before_children(flush: Callable[[], None]) -> None:
    """A child writes on the same pipes: an unfinished line must be there before, and a forked copy must not write it again."""
    os.register_at_fork(before=flush)
    system, start = os.system, subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def flushed_system(command: Any) -> int:
        flush()
        return system(command)

    def flushed_start(self: Any, *args: Any, **options: Any) -> Any:
        flush()
        return start(self, *args, **options)

    os.system = flushed_system
    subprocess.Popen._execute_child = flushed_start  # type: ignore[attr-defined]


def _explain_running_loop() -> None:
    run = asyncio.run

    def explained_run(main: Any, **options: Any) -> Any:
        """``asyncio.run``; inside a cell with a top-level ``await`` its error says what to do instead."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run(main, **options)
        if hasattr(main, "close"):
            main.close()
        raise RuntimeError("asyncio.run() cannot be called from a running event loop; this cell awaits already: use `await` instead")

    asyncio.run = explained_run


def _start_tasks_without_a_running_loop() -> None:
    create = asyncio.create_task

    def create_task(coro: Any, **options: Any) -> Any:
        """``asyncio.create_task``; that of a cell without a top-level ``await`` begins when the cell is over, as in a notebook."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if threading.current_thread() is threading.main_thread():
                return async_helpers.get_asyncio_loop().create_task(coro, **options)
        return create(coro, **options)

    asyncio.create_task = create_task
