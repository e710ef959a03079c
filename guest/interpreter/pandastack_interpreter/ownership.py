"""Which cell a thread or an asyncio task works for.

Both belong to the cell that started them, so that what they print during a later cell is not taken for that cell's output.
"""

from __future__ import annotations

import concurrent.futures.thread
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

_ATTRIBUTE = "_pandastack_cell"
_BUSY = "_pandastack_busy"

#: Tasks and callbacks of an event loop run in a copy of the context that made them, and so keep its cell.
_owner: ContextVar[int | None] = ContextVar(_ATTRIBUTE, default=None)
#: The cell that is running, or the last one that ran; 0 before the first.
_current = 0
#: In a process that user code forked, there is no later cell to tell from.
_forked = False


def begin(cell: int) -> None:
    """Makes a cell the current one. To be called in the main thread."""
    global _current
    _current = cell
    _owner.set(cell)


def current() -> int:
    """The cell that is running, or ran last."""
    return _current


def of_this_thread() -> int:
    """The cell that the calling thread or task works for."""
    if _forked:
        return _current
    owner = _owner.get()
    if owner is None:
        owner = threading.current_thread().__dict__.get(_ATTRIBUTE)
    return _current if owner is None else owner


def forget() -> None:
    """Makes everything in this process belong to the current cell."""
    global _forked
    _forked = True


def install() -> None:
    """Makes threads and pool work remember their cell."""
    _patch_start()
    _patch_submit()


def _patch_start() -> None:
    start = threading.Thread.start

    def start_owned(self: threading.Thread) -> None:
        # IPython runs shell magics of every cell in one thread of its own.
        if not is_script_magic_thread(self):
            self.__dict__[_ATTRIBUTE] = of_this_thread()
        start(self)

    threading.Thread.start = start_owned  # type: ignore[method-assign]


def is_script_magic_thread(thread: threading.Thread) -> bool:
    """Whether it is the event loop thread of ``%%bash`` and its like."""
    loop = getattr(getattr(thread, "_target", None), "__self__", None)
    return loop is not None and loop is _script_magic_loop()


def working_threads() -> int:
    """How many threads beside the main one may still do something: not those of pools that wait for work, nor tqdm's watchdog."""
    main = threading.main_thread()
    return sum(1 for thread in threading.enumerate() if thread is not main and not _is_idle(thread))


def _is_idle(thread: threading.Thread) -> bool:
    if type(thread).__module__.startswith("tqdm.") or is_script_magic_thread(thread):
        return True
    is_worker = getattr(thread, "_target", None) is concurrent.futures.thread._worker  # type: ignore[attr-defined]
    return is_worker and not thread.__dict__.get(_BUSY, False)


def _script_magic_loop() -> object | None:
    from IPython.core.interactiveshell import InteractiveShell

    if not InteractiveShell.initialized():
        return None
    magics = InteractiveShell.instance().magics_manager.registry.get("ScriptMagics")
    return getattr(magics, "event_loop", None)


def _patch_submit() -> None:
    submit = ThreadPoolExecutor.submit

    def submit_owned(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, _Owned(fn, of_this_thread()), *args, **kwargs)

    ThreadPoolExecutor.submit = submit_owned  # type: ignore[method-assign,assignment]


class _Owned:
    """Work for a pool thread, which is its submitter's for as long as it does it."""

    def __init__(self, work: Callable[..., Any], cell: int) -> None:
        self._work = work
        self._cell = cell

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        token = _owner.set(self._cell)
        attributes = threading.current_thread().__dict__
        attributes[_BUSY] = True
        try:
            return self._work(*args, **kwargs)
        finally:
            attributes[_BUSY] = False
            _owner.reset(token)
