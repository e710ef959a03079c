"""What the engines that draw charts have in common: how they fail, and how large a picture may be."""

from __future__ import annotations

#: Longest side and largest area of a picture, in pixels.
MAX_SIDE = 8192
MAX_PIXELS = 32 * 1024 * 1024


class NotRendered(Exception):
    """This chart cannot be drawn; the next one may."""


class EngineBroken(Exception):
    """What draws has ended, hangs, or cannot be started; it must be killed before it is used again."""
