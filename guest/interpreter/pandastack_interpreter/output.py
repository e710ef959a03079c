"""sys.stdout and sys.stderr of a context: text on the pipes of descriptors 1 and 2.

What is written there by whomever (prints, C code, child processes) keeps its order, because it goes the same way. Only text of a
thread that belongs to an earlier cell takes another way, with its cell's number.
"""

from __future__ import annotations

import fcntl
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from . import ownership

#: Sends late text: stream name, cell, text.
SendLate = Callable[[str, int, str], None]

#: Copies of the pipes are kept above the descriptors that user code deals with.
_HIGH_FD = 700
_NAMES = {1: "stdout", 2: "stderr"}
_ENCODING = "utf-8"
#: A lone surrogate must neither be lost nor raise where plain Python would lose the whole line.
_ERRORS = "backslashreplace"


class OutputStream(io.TextIOWrapper):
    """A text stream on a pipe that knows whose text it writes."""

    def __init__(self, fd: int, name: str, send_late: SendLate) -> None:
        super().__init__(
            io.BufferedWriter(io.FileIO(fd, "wb", closefd=False)),
            encoding=_ENCODING,
            errors=_ERRORS,
            line_buffering=True,
        )
        self._stream_name = name
        self._send_late = send_late

    def write(self, text: str, /) -> int:
        """Writes text for the cell that the calling thread works for."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        cell = ownership.of_this_thread()
        if cell != ownership.current():
            self._send_late(self._stream_name, cell, text)
            return len(text)
        return super().write(text)


class Output:
    """Both streams and the copies of their pipes."""

    def __init__(self, send_late: SendLate) -> None:
        self._send_late = send_late
        self._copies = {fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for fd in (1, 2)}
        self._identities = {fd: _identity(copy) for fd, copy in self._copies.items()}
        #: What prints go to unless user code replaced it. Log handlers of earlier cells hold on to these.
        self._streams: dict[str, OutputStream] = {}
        for fd, name in _NAMES.items():
            self._renew(fd, name)

    def repair(self) -> None:
        """Puts right what an earlier cell closed, redirected or deleted; a replacement of ``sys.stdout`` that works is left alone."""
        if _identity(0) is None:
            # Or the next file that is opened would be the standard input of every child.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
        for fd, name in _NAMES.items():
            if _identity(fd) != self._identities[fd]:
                os.dup2(self._copies[fd], fd)
            # A child that shares the pipe may have made it fail instead of wait.
            os.set_blocking(fd, True)
            if not _is_usable(self._streams[name]) or not _is_usable(getattr(sys, name, None)):
                self._renew(fd, name)
            elif self._streams[name].encoding != _ENCODING:
                self._streams[name].reconfigure(encoding=_ENCODING, errors=_ERRORS)

    def _renew(self, fd: int, name: str) -> None:
        stream = OutputStream(fd, name, self._send_late)
        self._streams[name] = stream
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)

    def flush(self) -> None:
        """Sees to it that everything written is in the pipes. A stream that user code broke is not our failure."""
        for name, ours in self._streams.items():
            _flush(getattr(sys, name, None))
            _flush(ours)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:  # noqa: S110
        pass


def _is_usable(stream: Any) -> bool:
    try:
        return stream is not None and not stream.closed
    except AttributeError:
        return hasattr(stream, "write")
    except ValueError:
        # Its buffer was detached.
        return False


def _identity(fd: int) -> tuple[int, int] | None:
    """What a descriptor leads to; ``None`` if it is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
