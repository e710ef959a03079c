"""Changes to the standard library: what waits for a person fails at once, and text keeps its place among that of child processes."""

from __future__ import annotations

import asyncio
import builtins
import getpass
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from IPython.core.error import StdinNotImplementedError


def install(flush: Callable[[], None]) -> None:
    """Applies all of them. ``flush`` puts what was printed so far on the pipes."""
    builtins.input = _no_input
    getpass.getpass = _no_input
    sys.breakpointhook = _no_debugger
    _flush_before_children(flush)
    _explain_running_loop()


def _no_input(*_args: Any, **_options: Any) -> NoReturn:
    raise StdinNotImplementedError("input is not available: this code runs without a terminal; pass values in the code")


def _no_debugger(*_args: Any, **_options: Any) -> NoReturn:
    raise RuntimeError("a debugger needs a terminal; this code runs without one")


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
