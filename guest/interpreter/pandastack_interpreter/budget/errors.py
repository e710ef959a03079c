"""Tracebacks: the exception itself and the innermost line of the user's code come first."""

from __future__ import annotations

import re

from .text import shorten

#: Where one frame ends and the next begins: IPython puts an empty line there, Python nothing.
_BETWEEN = re.compile(r'\n[ \t]*\n|\n(?=Cell In\[|File |  File ")')
_FRAME = re.compile(r'(Cell In\[|File |  File ")')
_USERS_FRAME = re.compile(r'(Cell In\[|  File "<ipython-input)')
_ARROW = re.compile(r"^-+> .*$", re.M)


def shorten_traceback(text: str, message: str, max_chars: int) -> str:
    """A traceback within ``max_chars`` characters. ``message`` is what it ends with: the exception's name and value."""
    if len(text) <= max_chars:
        return text
    body, ending = _ending(text, message)
    pieces = [piece.strip("\n") for piece in _BETWEEN.split(body) if piece.strip()]
    if not pieces:
        return shorten(text, max_chars)
    ending = shorten(ending, max_chars // 2)
    first = _most_telling(pieces)
    kept = {first: _shorten_frame(pieces[first], max_chars - _size([ending, _mark(len(pieces)), _mark(len(pieces))]))}
    if not kept[first]:
        return shorten(ending, max_chars)
    for position in range(len(pieces) - 1, -1, -1):
        more = {**kept, position: pieces[position]} if position != first else kept
        if _size(_joined(more, len(pieces), ending)) > max_chars:
            break
        kept = more
    return shorten("\n\n".join(_joined(kept, len(pieces), ending)), max_chars)


def _ending(text: str, message: str) -> tuple[str, str]:
    at = text.rfind(message) if message else -1
    if at < 0:
        at = text.rfind("\n") + 1
    return text[:at], text[at:]


def _most_telling(pieces: list[str]) -> int:
    for pattern in (_USERS_FRAME, _FRAME):
        for position in range(len(pieces) - 1, -1, -1):
            if pattern.match(pieces[position]):
                return position
    return len(pieces) - 1


def _shorten_frame(frame: str, room: int) -> str:
    """Place and failing line of a frame, if all of it is too long; nothing if not even they have room."""
    if len(frame) <= room:
        return frame
    place, *_ = frame.split("\n", 1)
    arrow = _ARROW.search(frame)
    if arrow is not None:
        frame = f"{place}\n{arrow[0]}"
    return shorten(frame, room) if room >= min(len(place), 40) else ""


def _mark(count: int) -> str:
    return f"[... {count} {'part' if count == 1 else 'parts'} left out ...]"


def _joined(kept: dict[int, str], count: int, ending: str) -> list[str]:
    parts: list[str] = []
    following = 0
    for position in sorted(kept):
        if position > following:
            parts.append(_mark(position - following))
        parts.append(kept[position])
        following = position + 1
    if following < count:
        parts.append(_mark(count - following))
    return [*parts, ending]


def _size(parts: list[str]) -> int:
    return sum(map(len, parts)) + 2 * (len(parts) - 1)
