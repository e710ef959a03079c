"""Messages on a Unix socket: a 4-byte big-endian length, then that many bytes of UTF-8 JSON."""

from __future__ import annotations

import array
import json
import socket
import struct
import threading
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Message = dict[str, Any]

#: The agent refuses longer messages, so nothing longer may be sent or is believed.
MAX_MESSAGE = 40 * 1024 * 1024
#: Most descriptors that come with one message.
MAX_FDS = 8

_LENGTH = struct.Struct(">I")


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket.

    ``shield`` is entered around every write, so that an interrupt cannot tear a message apart.
    """

    def __init__(self, sock: socket.socket, shield: AbstractContextManager[Any] | None = None) -> None:
        self._socket = sock
        self._shield = shield or nullcontext()
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._fds: deque[int] = deque()

    def fileno(self) -> int:
        """The descriptor, to poll on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def send(self, message: Message) -> None:
        """Sends one message whole. Raises ``ChannelClosed`` if nobody reads any more."""
        body = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = body.encode("utf-8", "backslashreplace")
        if len(data) > MAX_MESSAGE:
            raise ValueError(f"a message of {len(data)} bytes is too long")
        with self._shield, self._lock:
            try:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
            except OSError as error:
                raise ChannelClosed(str(error)) from error

    def receive(self) -> tuple[Message, list[int]]:
        """Waits for one message and the descriptors that came with it. Raises ``ChannelClosed`` at the end."""
        header = self._take(_LENGTH.size)
        (length,) = _LENGTH.unpack(header)
        if length > MAX_MESSAGE:
            raise ChannelClosed(f"a message of {length} bytes was announced")
        message = json.loads(self._take(length))
        fds = list(self._fds)
        self._fds.clear()
        return message, fds

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._read_more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _read_more(self) -> None:
        space = socket.CMSG_LEN(MAX_FDS * array.array("i").itemsize)
        try:
            data, ancillary, _flags, _address = self._socket.recvmsg(65536, space, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._fds.extend(fds)
        if not data:
            raise ChannelClosed("end of file")
        self._buffer += data
