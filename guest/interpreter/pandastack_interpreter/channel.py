"""Messages on a Unix socket: a 4-byte big-endian length, then that many bytes of UTF-8 JSON."""

from __future__ import annotations

import array
import codecs
import json
import os
import socket
import struct
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Message = dict[str, Any]

#: The agent refuses longer messages, so nothing longer may be sent or is believed.
MAX_MESSAGE = 40 * 1024 * 1024
#: Most descriptors that come with one message.
MAX_FDS = 8
#: Longest single read; a length that is announced costs no memory before its bytes are there.
_LONGEST_READ = 1024 * 1024
#: Longest read that may bring more than was asked for.
_LONGEST_AHEAD = 64 * 1024

_LENGTH = struct.Struct(">I")


#: Python strings may hold half a surrogate pair, which is no character and has no form in UTF-8; strict JSON parsers refuse its escape
#: too. It is sent as the text of that escape.
_SURROGATES = "pandastack-surrogates"
codecs.register_error(
    _SURROGATES,
    lambda error: ("".join(f"\\\\u{ord(c):04x}" for c in error.object[error.start : error.end]), error.end),  # type: ignore[attr-defined]
)


class ChannelClosed(Exception):
    """The other side is gone, or does not keep to the framing, which comes to the same."""


def encode(message: Message) -> bytes:
    """The JSON of a message, in UTF-8."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", _SURROGATES)


class Channel:
    """One end of a socket.

    ``shield`` is entered around every write, so that an interrupt cannot tear a message apart. ``read_ahead`` saves a system call for
    each message on a channel that carries no descriptors and is not polled.
    """

    def __init__(self, sock: socket.socket, shield: AbstractContextManager[Any] | None = None, read_ahead: bool = False) -> None:
        self._socket = sock
        self._shield = shield or nullcontext()
        self._lock = threading.Lock()
        self._fds: list[int] = []
        self._read_ahead = read_ahead
        self._ahead = bytearray()

    def fileno(self) -> int:
        """The descriptor, to poll on."""
        return self._socket.fileno()

    def has_read_ahead(self) -> bool:
        """Whether something was read already that a poll would not show."""
        return bool(self._ahead)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def send(self, *messages: Message) -> None:
        """Sends messages whole, with one system call. Raises ``ChannelClosed`` if nobody reads any more."""
        framed = bytearray()
        for message in messages:
            data = encode(message)
            if len(data) > MAX_MESSAGE:
                raise ValueError(f"a message of {len(data)} bytes is too long")
            framed += _LENGTH.pack(len(data)) + data
        with self._shield, self._lock:
            try:
                self._socket.sendall(framed)
            except OSError as error:
                raise ChannelClosed(str(error)) from error

    def send_and_sync(self, *messages: Message) -> None:
        """Sends messages and waits until they were handled. Raises as ``send`` does. Nobody else may be receiving."""
        with self._shield:
            self.send(*messages, {"op": "sync"})
            self.receive()

    def receive(self) -> tuple[Message, list[int]]:
        """Waits for one message and the descriptors that came with it. Raises ``ChannelClosed`` at the end."""
        try:
            (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
            if length > MAX_MESSAGE:
                raise ChannelClosed(f"a message of {length} bytes was announced")
            message = _decode(self._take(length))
        except ChannelClosed:
            for fd in self._fds:
                os.close(fd)
            self._fds.clear()
            raise
        fds, self._fds = self._fds, []
        return message, fds

    def _take(self, count: int) -> bytes:
        # Without read-ahead never more than asked for: the descriptors of the next message would come along, and a poll would not see
        # what is left over.
        data, self._ahead = self._ahead, bytearray()
        while len(data) < count:
            data += self._receive_ahead() if self._read_ahead else self._read(min(count - len(data), _LONGEST_READ))
        self._ahead += data[count:]
        return bytes(data[:count])

    def _receive_ahead(self) -> bytes:
        try:
            data = self._socket.recv(_LONGEST_AHEAD)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("end of file")
        return data

    def _read(self, count: int) -> bytes:
        space = socket.CMSG_LEN(MAX_FDS * array.array("i").itemsize)
        try:
            data, ancillary, _flags, _address = self._socket.recvmsg(count, space, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._fds.extend(fds)
        if not data:
            raise ChannelClosed("end of file")
        return data


def _decode(data: bytes) -> Message:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ChannelClosed(f"a message that is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ChannelClosed("a message that is not an object")
    return message
