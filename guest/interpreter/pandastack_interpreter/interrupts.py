"""When an interrupt becomes a KeyboardInterrupt: only in a running cell, and never in the middle of a message."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupts:
    """Owns SIGINT. As a context manager it shields a stretch of code: an interrupt is delivered after it."""

    def __init__(self) -> None:
        self._running = False
        self._shields = 0
        self._pending = False

    def install(self) -> None:
        """Takes SIGINT, also back from user code that changed it."""
        if signal.getsignal(signal.SIGINT) != self._handle:
            signal.signal(signal.SIGINT, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def begin(self) -> None:
        """A cell starts; an interrupt meant for an earlier one is void."""
        self._pending = False
        self._shields = 0
        self._running = True

    def is_running(self) -> bool:
        """Whether a cell runs and may be interrupted."""
        return self._running

    def end(self) -> None:
        """The cell is over; interrupts do nothing until the next."""
        self._running = False
        self._pending = False

    @contextlib.contextmanager
    def muted(self) -> Iterator[None]:
        """Interrupts do nothing inside. They come again and again until the cell ends; one was enough."""
        running, self._running = self._running, False
        try:
            yield
        finally:
            self._running = running

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._shields += 1

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._shields = max(0, self._shields - 1)
        if self._shields == 0 and self._pending and self._running:
            self._pending = False
            raise KeyboardInterrupt

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._running:
            return
        if self._shields:
            self._pending = True
        else:
            raise KeyboardInterrupt
