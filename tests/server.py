"""The real `pandastack serve`, started and ended the way an operator would."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import requests
from pandastack import Client

REPO = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("PANDASTACK_BIN", REPO / "target/release/pandastack"))
BAKED = Path(os.environ.get("PANDASTACK_TEST_DATA", REPO / ".build/data"))
TEMPLATE = "code-interpreter"
# Directories of a data directory that hold templates and are only read by a server.
BAKED_PARTS = ("rootfs", "runtime", "templates")


def clean_environment(home: Path) -> dict[str, str]:
    """The caller's environment without a PandaStack configuration, at home in `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PANDASTACK_")}
    kept.pop("XDG_DATA_HOME", None)
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}


def wait_until(condition, seconds: float, what: str):
    """Polls until `condition()` is true and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Server:
    """One server process over a data directory of its own that borrows the baked templates."""

    def __init__(self, root: Path, *arguments: str, pool_size: int = 0, settings: dict[str, str] | None = None):
        self.data_dir = root / "data"
        self.home = root / "home"
        self.log = root / "server.log"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._arguments = (*arguments, "--pool-size", str(pool_size))
        # Environment variables of the server beside the caller's.
        self.settings = settings or {}
        self.process: subprocess.Popen | None = None
        for directory in (self.data_dir, self.home):
            directory.mkdir(parents=True)
        for part in BAKED_PARTS:
            (self.data_dir / part).symlink_to(BAKED / part)

    @property
    def config_file(self) -> Path:
        return self.home / ".config/pandastack/config.json"

    @property
    def config(self) -> dict:
        return json.loads(self.config_file.read_text())

    @property
    def key(self) -> str:
        return self.config["token"]

    @property
    def environment(self) -> dict[str, str]:
        return clean_environment(self.home)

    def start(self) -> "Server":
        command = [BINARY, "serve", "--listen", self.url.removeprefix("http://")]
        command += ["--data-dir", self.data_dir, *self._arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment | self.settings
            )
        wait_until(self._answers, 30, f"server start, see {self.log}")
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the server ended:\n{self.log.read_text()[-4000:]}"
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).ok
        except requests.ConnectionError:
            return False

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self, *, kill: bool = False) -> None:
        """Ends the server, on request or at once, and starts it again."""
        if kill:
            self.kill9()
        else:
            assert self.terminate() == 0
        self.start()

    def terminate(self, seconds: float = 30) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def stop(self) -> None:
        """Ends every sandbox, then the server."""
        if self.process is None:
            return
        if self.process.poll() is None:
            for sandbox in self.client().sandboxes.list():
                self.api().delete(f"/sandboxes/{sandbox.id}")
            self.terminate()
        self.process = None

    def client(self) -> Client:
        """A fresh client of the published SDK."""
        return Client(api_url=self.url, api_key=self.key)

    def api(self, key: str | None = None) -> "Api":
        return Api(self.url, key or self.key)

    def run(self, *arguments: object, check: bool = True, **options) -> subprocess.CompletedProcess:
        """Runs the command line program against this server."""
        options = {"text": True, "capture_output": True, "timeout": 120, "stdin": subprocess.DEVNULL} | options
        done = subprocess.run([BINARY, *map(str, arguments)], env=self.environment, **options)
        assert not check or done.returncode == 0, f"exit {done.returncode}: {done.stderr}{done.stdout}"
        return done


class Api:
    """The REST API without an SDK in between."""

    def __init__(self, url: str, key: str | None):
        self.base = f"{url}/v1"
        self.session = requests.Session()
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"

    def request(self, method: str, path: str, **options) -> requests.Response:
        return self.session.request(method, self.base + path, timeout=120, **options)

    def get(self, path: str, **options) -> requests.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: object = None, **options) -> requests.Response:
        return self.request("POST", path, json=body, **options)

    def put(self, path: str, **options) -> requests.Response:
        return self.request("PUT", path, **options)

    def patch(self, path: str, body: object = None, **options) -> requests.Response:
        return self.request("PATCH", path, json=body, **options)

    def delete(self, path: str, **options) -> requests.Response:
        return self.request("DELETE", path, **options)

    def run(self, sandbox: str, context: str, code: str, timeout: float | None = None, **fields) -> requests.Response:
        body = {"code": code, **fields}
        if timeout is not None:
            body["timeout_ms"] = int(timeout * 1000)
        return self.post(f"/sandboxes/{sandbox}/repl/sessions/{context}/run", body)
