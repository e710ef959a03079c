"""Framing: whole messages, nothing lost, nothing believed."""

import json
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from harness import Channel, ChannelClosed

from pandastack_interpreter.channel import MAX_MESSAGE, encode


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Channel]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    theirs.settimeout(20)
    yield ours, Channel(theirs)
    ours.close()
    theirs.close()


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def test_round_trip(pair: tuple[socket.socket, Channel]) -> None:
    other = Channel(pair[0])
    message = {"op": "x", "text": 'ä☕\0"\\\n', "n": [1, None, True]}
    other.send(message)
    assert pair[1].receive() == (message, [])


def test_torn_anywhere(pair: tuple[socket.socket, Channel]) -> None:
    messages = [{"i": i, "t": "☕" * i} for i in range(30)]
    data = b"".join(framed(json.dumps(m).encode()) for m in messages)
    pieces = random.Random(7)

    def send() -> None:
        at = 0
        while at < len(data):
            step = pieces.randint(1, 9)
            pair[0].sendall(data[at : at + step])
            at += step

    sender = threading.Thread(target=send)
    sender.start()
    assert [pair[1].receive()[0] for _ in messages] == messages
    sender.join()


def test_a_message_leaves_the_next_in_the_socket(pair: tuple[socket.socket, Channel]) -> None:
    pair[0].sendall(framed(b'{"a":1}') + framed(b'{"b":2}'))
    assert pair[1].receive()[0] == {"a": 1}
    import select

    assert select.select([pair[1]], [], [], 0)[0] == [pair[1]]
    assert pair[1].receive()[0] == {"b": 2}


def test_descriptors_stay_with_their_message(pair: tuple[socket.socket, Channel]) -> None:
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    pair[0].sendall(framed(b'{"n":0}'))
    for n, count in ((1, 3), (2, 1)):
        socket.send_fds(pair[0], [framed(b'{"n":%d}' % n)], fds[:count])
    received = [pair[1].receive() for _ in range(3)]
    assert [(m["n"], len(got)) for m, got in received] == [(0, 0), (1, 3), (2, 1)]
    for fd in fds + [fd for _, got in received for fd in got]:
        os.close(fd)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        struct.pack(">I", 10) + b"{",
        struct.pack(">I", MAX_MESSAGE + 1),
        b"\xff\xff\xff\xff",
        framed(b""),
        framed(b"{"),
        framed(b"[]"),
        framed(b"null"),
        framed(b"\xff\xfe"),
        framed(b"[" * 100_000),
        framed(b'{"n": ' + b"9" * 10_000 + b"}"),
    ],
)
def test_hostile_bytes_close_the_channel(pair: tuple[socket.socket, Channel], data: bytes) -> None:
    pair[0].sendall(data)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelClosed):
        pair[1].receive()


def test_nobody_reads(pair: tuple[socket.socket, Channel]) -> None:
    pair[0].close()
    with pytest.raises(ChannelClosed):
        for _ in range(3):
            pair[1].send({"a": "b"})


def test_too_long_a_message_is_refused_whole(pair: tuple[socket.socket, Channel]) -> None:
    with pytest.raises(ValueError, match="too long"):
        pair[1].send({"a": "x" * MAX_MESSAGE})
    pair[1].send({"a": 1})
    assert Channel(pair[0]).receive()[0] == {"a": 1}


def test_threads_do_not_mix_messages(pair: tuple[socket.socket, Channel]) -> None:
    threads = [threading.Thread(target=lambda n=n: [pair[1].send({"n": n, "t": "x" * 5000}) for _ in range(50)]) for n in range(4)]
    for thread in threads:
        thread.start()
    other = Channel(pair[0])
    counts = [other.receive()[0]["n"] for _ in range(200)]
    assert sorted(counts) == sorted(list(range(4)) * 50)
    for thread in threads:
        thread.join()


def test_half_characters_are_strict_json() -> None:
    data = encode({"t": "a\ud800b\udc00\U0001f600"})
    assert json.loads(data.decode("utf-8"))["t"] == "a\\ud800b\\udc00\U0001f600"


def test_nan_is_no_json() -> None:
    with pytest.raises(ValueError):
        encode({"t": float("nan")})
