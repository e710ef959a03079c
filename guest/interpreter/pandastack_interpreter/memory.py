"""The memory limit of a context, and the reserve that lets it say that it ran into it."""

from __future__ import annotations

import resource
from pathlib import Path

#: Address space beyond the limit: for the traceback and for the cell after, which may free something.
RESERVE = 128 * 1024 * 1024


class MemoryLimit:
    """A limit on the address space, in bytes. With `None` it does nothing."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._is_imposed = False
        self._is_open = False

    def impose(self) -> None:
        """Sets the limit, once. Not before a process is known to run Python: it cannot be lifted again for an interpreter that reserves
        more than it uses.
        """
        if self.limit is not None and not self._is_imposed:
            resource.setrlimit(resource.RLIMIT_AS, (self.limit, self.limit + RESERVE))
            self._is_imposed = True

    def begin(self) -> None:
        """A cell starts: the reserve is closed, unless so little is free that the cell could not even say so."""
        if self.limit is None or not self._is_open:
            return
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        except OSError:
            # The code holds all descriptors that there are.
            return
        if used < self.limit - RESERVE // 4:
            self._allow(self.limit)
            self._is_open = False

    def open_reserve(self, error: BaseException | None) -> None:
        """A cell failed: lets the reserve be used if it was for want of memory."""
        if isinstance(error, (MemoryError, OSError, RuntimeError)):
            self._is_open = True
            self._allow(None)

    def _allow(self, soft: int | None) -> None:
        if self.limit is None:
            return
        try:
            _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (hard if soft is None else min(soft, hard) if hard >= 0 else soft, hard))
        except (OSError, ValueError):
            # User code may have lowered the hard limit; then that one holds.
            return
