"""Asks the sandbox's renderer for pictures of charts."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from ..channel import Channel, ChannelClosed
from .engine import NotRendered

#: Where the renderer listens, if not at the usual place.
SOCKET = "PANDASTACK_RENDERER_SOCKET"
_USUAL_PLACE = "/run/pandastack/renderer.sock"
#: The start of a conversation must not hold a cell.
_CONNECT_SECONDS = 2.0


def render(kind: str, spec: dict[str, Any], seconds: float, **options: Any) -> str:
    """A picture in base64. ``options`` are ``width``, ``height``, ``scale`` and ``format``. Raises ``NotRendered``.

    May be interrupted.
    """
    deadline = time.monotonic() + seconds
    try:
        with _connect() as connection:
            connection.settimeout(max(0.001, seconds))
            channel = Channel(connection)
            channel.send({"op": "render", "kind": kind, "spec": spec, **options})
            answer, _fds = channel.receive()
    except ValueError as error:
        raise NotRendered(str(error)) from error
    except (OSError, ChannelClosed) as error:
        raise NotRendered("it took too long" if time.monotonic() >= deadline else f"the renderer does not answer: {error}") from error
    if answer.get("op") != "rendered":
        raise NotRendered(str(answer.get("message")))
    return str(answer["data"])


def warm(kind: str) -> None:
    """Lets the renderer start what draws such charts, and does not wait for it."""
    try:
        with _connect() as connection:
            Channel(connection).send({"op": "warm", "kind": kind})
    except (OSError, ChannelClosed):
        # Who asks for a picture will hear of it.
        return


def _connect() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(os.environ.get(SOCKET) or _USUAL_PLACE)
    except BaseException:
        connection.close()
        raise
    return connection
