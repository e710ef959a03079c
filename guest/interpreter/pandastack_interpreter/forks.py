"""A bound on the copies that an interpreter makes of itself.

A copy takes some 30 MB under gVisor, and dozens of them leave the agent no processor time to end them, so that a cell which forks
without end would take the whole sandbox along. Code that calls the C library itself is not held up by this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

#: Tasks, threads included, that forks of one cell may add to those that there are; fewer where there are many, as after a bomb.
MOST_MORE, MOST_MORE_OF_MANY = 40, 20
_MANY = 60
#: ``struct sysinfo`` up to its count of tasks: see sysinfo(2).
_SYSINFO = struct.Struct("@l3L6LH")
_LIBC = ctypes.CDLL(None)

#: What the running cell and its copies may not exceed; set at its first fork.
_most: int | None = None


def begin() -> None:
    """A cell starts."""
    global _most
    _most = None


def bound() -> None:
    """Makes ``os.fork`` fail as at a limit of processes once there are too many."""
    fork = os.fork

    def bounded_fork() -> int:
        """``os.fork``. Raises ``BlockingIOError`` if there are too many processes."""
        global _most
        count = count_tasks()
        if _most is None:
            _most = count + (MOST_MORE if count < _MANY else MOST_MORE_OF_MANY)
        if count > _most:
            raise BlockingIOError(errno.EAGAIN, "too many processes run in this sandbox for another fork")
        return fork()

    os.fork = bounded_fork


def count_tasks() -> int:
    """How many there are in the sandbox."""
    buffer = ctypes.create_string_buffer(128)
    if _LIBC.sysinfo(buffer) != 0:
        return 0
    return int(_SYSINFO.unpack_from(buffer.raw)[-1])
