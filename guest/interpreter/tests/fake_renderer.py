"""A renderer that answers as a test wants it to."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from harness import Channel, ChannelClosed

from pandastack_interpreter.channel import Message

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\nno more than this").decode()


def drawn(_request: Message) -> Message:
    """Every chart has a picture."""
    return {"op": "rendered", "data": PIXEL}


class FakeRenderer:
    """Listens at ``path``, keeps the requests, and says what ``answer`` says; None is silence."""

    def __init__(self, path: Path, answer: Callable[[Message], Message | None]) -> None:
        self.requests: list[Message] = []
        self.environment = {"PANDASTACK_RENDERER_SOCKET": str(path)}
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        try:
            while True:
                message, _fds = channel.receive()
                self.requests.append(message)
                answer = None if message["op"] == "warm" else self._answer(message)
                if answer is not None:
                    channel.send(answer)
        except ChannelClosed:
            channel.close()

    def close(self) -> None:
        """Ends it."""
        self._listener.close()
