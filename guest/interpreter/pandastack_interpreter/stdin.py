"""Standard input that a cell was given: exactly that text, for Python and for the processes that it starts, and then the end of file."""

from __future__ import annotations

import io
import os
import sys
from types import TracebackType
from typing import Any

_given = False


def is_given() -> bool:
    """Whether the running cell has any."""
    return _given


def descriptor_of(text: str) -> int:
    """A descriptor from which the text can be read, in UTF-8. The caller closes it."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            data = data[os.write(fd, data) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


class StandardInput:
    """Gives a cell its standard input, and takes it away after the cell. With `None` there is none, which costs nothing."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __enter__(self) -> None:
        global _given
        if self._text is None:
            return
        _replace(descriptor_of(self._text))
        self._before: Any = sys.stdin
        self._stream = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="replace")
        sys.stdin = self._stream
        _given = True

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None) -> None:
        global _given
        if self._text is None:
            return
        _given = False
        if sys.stdin is self._stream:
            sys.stdin = self._before
        _replace(os.open(os.devnull, os.O_RDONLY))


def _replace(fd: int) -> None:
    os.dup2(fd, 0)
    os.close(fd)
