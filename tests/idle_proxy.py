"""A proxy like those that stand in front of servers: it cuts connections on which the server is silent for long."""

import socket
import threading
from contextlib import suppress


class IdleProxy:
    """Forwards TCP connections to a server; ends one when no byte has come from the server for `seconds`."""

    def __init__(self, host: str, port: int, seconds: float):
        self._server, self._seconds = (host, port), seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                server.settimeout(self._seconds)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=_forward, args=(source, target), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), target:
        while data := source.recv(65536):
            target.sendall(data)
