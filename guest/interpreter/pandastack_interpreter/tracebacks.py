"""Tracebacks as the author of the code wants them: without the frames of the machinery that runs it."""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType

import IPython

#: Frames of code in these directories are ours or IPython's.
_MACHINERY = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (IPython.__file__, __file__))
#: Exceptions that one exception may be chained to, at most; a loop of them is possible.
_LONGEST_CHAIN = 100


#: IPython's name for the source of a cell, as Python writes it in a frame.
_CELL_FRAME = re.compile(r'File "<ipython-input-(\d+)-[0-9a-f]+>"')

#: Frames of one exception that are shown: the outermost and the innermost. Formatting thousands takes many seconds.
_OUTERMOST, _INNERMOST = 10, 20


def only_users_frames(error: BaseException) -> int:
    """Takes the machinery's frames out of an exception and of those it is chained to, and the middle out of endless recursions.

    Returns how many frames of the user's were left out.
    """
    left_out = 0
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending and len(seen) < _LONGEST_CHAIN:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__, dropped = _pruned(current.__traceback__)
        left_out += dropped
        pending += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
    return left_out


def _pruned(link: TracebackType | None) -> tuple[TracebackType | None, int]:
    kept: list[TracebackType] = []
    while link is not None:
        if not link.tb_frame.f_code.co_filename.startswith(_MACHINERY):
            kept.append(link)
        link = link.tb_next
    dropped = max(0, len(kept) - _OUTERMOST - _INNERMOST)
    if dropped:
        del kept[_OUTERMOST:-_INNERMOST]
    following = None
    for link in reversed(kept):
        link.tb_next = following
        following = link
    return following, dropped


def traceback_of(error: BaseException) -> str:
    """Python's own traceback, the user's frames only."""
    only_users_frames(error)
    try:
        return _CELL_FRAME.sub(r"Cell In[\1]", "".join(traceback.format_exception(error)).rstrip("\n"))
    except BaseException:
        return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException | None) -> str:
    """``str`` of an exception, also of one that has none."""
    try:
        return str(error)
    except BaseException as broken:
        return f"<the text of {type(error).__name__} cannot be had: {type(broken).__name__}>"
