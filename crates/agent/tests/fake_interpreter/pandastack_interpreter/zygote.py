"""Stands in for the interpreter where the tests need one that misbehaves. Its cells are words, see `run`."""

import argparse
import json
import os
import select
import signal
import socket
import struct
import sys
import time


def send(channel, **message):
    body = json.dumps(message).encode()
    channel.sendall(struct.pack(">I", len(body)) + body)


def receive(channel, size=4):
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return data


def message(channel):
    return json.loads(receive(channel, struct.unpack(">I", receive(channel))[0]))


def run(channel, request):
    cell = request["cell"]
    word, _, rest = request["code"].partition(" ")
    if word == "garbage":
        channel.sendall(os.urandom(100_000))
    elif word == "json":
        body = rest.encode()
        channel.sendall(struct.pack(">I", len(body)) + body)
    elif word == "huge":
        channel.sendall(struct.pack(">I", 0xFFFFFFFF))
        time.sleep(60)
    elif word == "flood":
        while True:
            send(channel, op="display", cell=cell, data={"text/plain": "x" * 100_000}, display_id=None, update=False)
    elif word == "stale":
        send(channel, op="result", cell=cell - 1, data={"text/plain": "stale"})
        send(channel, op="end", cell=cell - 1, status="ok", exit_code=0, execution_count=1, threads=0, tasks=0)
    elif word == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(1, b"deaf")
        time.sleep(60)
    elif word == "late":
        if os.fork() == 0:
            time.sleep(float(rest))
            os.write(1, b"LATE")
            os._exit(0)
    elif word == "die_later":
        if os.fork() == 0:
            time.sleep(0.1)
            os.kill(os.getppid(), signal.SIGSEGV)
            os._exit(0)
    elif word == "murmur":
        # Words of an earlier cell's threads: its number, how often, what.
        earlier, count, text = rest.split(" ")
        for _ in range(int(count)):
            send(channel, op="stream", cell=int(earlier), name="stderr", text=text)
    elif word == "wait":
        os.write(1, b"on")
        while not os.path.exists(rest):
            time.sleep(0.01)
    elif word == "heed":
        heard = []
        signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        os.write(1, b"on")
        while not heard:
            time.sleep(0.01)
        send(channel, op="error", cell=cell, name="KeyboardInterrupt", value="", traceback="KeyboardInterrupt")
    elif word == "request":
        told = {name: request[name] for name in ("stdin", "max_chars")}
        os.write(1, json.dumps([LANGUAGE, told]).encode())
    elif word == "reseeds":
        # After which cells, 0 for between two.
        RESEEDS.extend([cell] * request["reseed"])
        os.write(1, json.dumps(RESEEDS).encode())
    elif word == "large":
        text = "x" * 1_000_000
        for _ in range(int(rest)):
            send(channel, op="stream", cell=cell, name="stdout", text=text)
    elif word == "count":
        with open(rest, "a") as file:
            file.write("x")
        os.write(1, open(rest, "rb").read())
    elif word == "exit":
        os._exit(int(rest))
    elif word == "echo":
        os.write(1, rest.encode())
    send(channel, op="end", cell=cell, status="ok", exit_code=0, execution_count=cell, threads=0, tasks=0)


LANGUAGE = None
RESEEDS = []


def context(fds, language):
    global LANGUAGE
    LANGUAGE = language
    os.setsid()
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel = socket.socket(fileno=os.dup(fds[0]))
    os.dup2(fds[1], 1)
    os.dup2(fds[2], 2)
    send(channel, op="hello", pid=os.getpid())
    while True:
        request = message(channel)
        if request["op"] == "run":
            run(channel, request)
        elif request["op"] == "assign":
            LANGUAGE = request["language"]
        elif request["op"] == "reseed":
            RESEEDS.append(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--warm-import", action="append")
    control = socket.socket(fileno=parser.parse_args().control_fd)
    if os.environ.get("FAKE_NEVER_READY"):
        sys.exit("not today")
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    send(control, op="ready", seconds=0.1)
    while True:
        ready, _, _ = select.select([control, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 100)
            try:
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    code = os.waitstatus_to_exitcode(ended[1])
                    send(
                        control,
                        op="exited",
                        pid=ended[0],
                        exit_code=code if code >= 0 else None,
                        signal=-code if code < 0 else None,
                    )
            except ChildProcessError:
                pass
        if control in ready:
            head, fds, _, _ = socket.recv_fds(control, 4, 3)
            if not head:
                return
            head += receive(control, 4 - len(head)) if len(head) < 4 else b""
            request = json.loads(receive(control, struct.unpack(">I", head)[0]))
            if os.path.exists("no-more-forks"):
                send(control, op="fork_failed", context_id=request["context_id"], message="no more")
                continue
            pid = os.fork()
            if pid == 0:
                try:
                    context(fds, request["language"])
                finally:
                    os._exit(1)
            for fd in fds:
                os.close(fd)
            send(control, op="forked", context_id=request["context_id"], pid=pid)


main()
