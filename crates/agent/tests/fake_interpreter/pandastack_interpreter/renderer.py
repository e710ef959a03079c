"""Stands in for the renderer: tells its process id and its descriptors, or ends."""

import argparse
import os
import socket
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("--listen-fd", type=int)
listener = socket.socket(fileno=parser.parse_args().listen_fd)
# Its browser: a process of its session, and one that has left it.
subprocess.Popen(["sleep", "9494"])
subprocess.Popen(["setsid", "sleep", "9495"])
while True:
    connection, _ = listener.accept()
    word = connection.recv(100)
    if word == b"end":
        os._exit(3)
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 100) if os.path.lexists(f"/proc/self/fd/{fd}")]
    connection.sendall("\n".join([str(os.getpid()), *links]).encode())
    connection.close()
