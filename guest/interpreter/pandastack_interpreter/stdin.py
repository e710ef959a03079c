"""Standard input that a cell was given: a file in memory with exactly that text."""

from __future__ import annotations

import os


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
