"""The memory limit of a context, and the reserve that lets it say that it ran into it."""

from __future__ import annotations

import resource
from pathlib import Path

#: Address space beyond the limit: for the traceback and for the cell after, which may free something.
RESERVE = 128 * 1024 * 1024


class MemoryLimit:
    """A limit on the address space. Without one it does nothing."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._is_open = False

    def set(self, limit: int) -> None:
        """Sets the limit, in bytes."""
        self._limit = limit
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit + RESERVE))

    def begin(self) -> None:
        """A cell starts: the reserve is closed, unless so little is free that the cell could not even say so."""
        if self._limit is None or not self._is_open:
            return
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if used < self._limit - RESERVE // 4:
            self._allow(self._limit)
            self._is_open = False

    def open_reserve(self, error: BaseException | None) -> None:
        """A cell failed: lets the reserve be used if it was for want of memory."""
        if isinstance(error, (MemoryError, OSError, RuntimeError)):
            self._is_open = True
            self._allow(None)

    def _allow(self, soft: int | None) -> None:
        if self._limit is None:
            return
        try:
            _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (hard if soft is None else min(soft, hard) if hard >= 0 else soft, hard))
        except (OSError, ValueError):
            # User code may have lowered the hard limit; then that one holds.
            return
