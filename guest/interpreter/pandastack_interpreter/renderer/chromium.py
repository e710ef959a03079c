"""Pictures of plotly figures: a headless Chromium that is kept running, spoken to in its DevTools protocol over two pipes.

Not kaleido, which starts an interpreter beside the browser, loads its page anew within each call and cannot end a browser that hangs.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from .engine import EngineBroken, NotRendered

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    # The sandbox that it runs in is ours.
    "--no-sandbox",
    "--no-zygote",
    # Two thirds of the memory of several processes, and half of the start.
    "--single-process",
    "--disable-gpu",
    # 3D charts draw with WebGL, and there is no graphics card.
    "--enable-unsafe-swiftshader",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--allow-file-access-from-files",
    # A figure may name addresses; what comes from them would differ from day to day.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_PAGE = '<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><script src="{}"></script></body>'
_DRAW = "(spec => Plotly.toImage({{data: spec.data, layout: spec.layout, config: spec.config}}, {}))({})"
#: Longest message that is believed: twice the largest picture.
_LONGEST_MESSAGE = 64 * 1024 * 1024
_LONGEST_READ = 1024 * 1024
#: The ends of the pipes are moved here, away from the places 3 and 4 that Chromium wants them in.
_HIGH_FD = 64


class Chromium:
    """One browser with one page that has plotly.js. For one thread at a time."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def start(self, deadline: float) -> None:
        """Starts the browser unless it runs. ``deadline`` is a ``time.monotonic()``. Raises ``EngineBroken``."""
        if self._is_running():
            return
        self.kill()
        executable = next(filter(None, map(shutil.which, _NAMES)), None)
        script = _plotly_script()
        if executable is None or script is None:
            raise EngineBroken("Chromium or plotly is not installed")
        self._home = tempfile.mkdtemp(prefix="pandastack-chromium-")
        page = Path(self._home, "page.html")
        page.write_text(_PAGE.format(script.as_uri()))
        self._spawn(executable)
        self._open(page.as_uri(), deadline)

    def render(self, spec: dict[str, Any], options: dict[str, Any], deadline: float) -> str:
        """The picture of a figure, in base64, or as text if it is an SVG.

        Raises ``NotRendered`` if the figure is to blame, ``EngineBroken`` if the browser is of no use any more.
        """
        self.start(deadline)
        expression = _DRAW.format(json.dumps({**options, "imageDataOnly": True}), json.dumps(spec))
        answer = self._call("Runtime.evaluate", deadline, expression=expression, awaitPromise=True, returnByValue=True)
        value = answer.get("result", {}).get("value")
        if "exceptionDetails" in answer or not isinstance(value, str):
            raise NotRendered(_complaint(answer.get("exceptionDetails") or {}))
        return value

    def kill(self) -> None:
        """Ends the browser at once, and removes what it kept on disk."""
        if self._pid is None:
            return
        pid, self._pid = self._pid, None
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)
        os.close(self._to_browser)
        os.close(self._from_browser)
        shutil.rmtree(self._home, ignore_errors=True)

    def _is_running(self) -> bool:
        # One that was killed for want of memory, say, since the last picture.
        return self._pid is not None and os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def _spawn(self, executable: str) -> None:
        its_input, self._to_browser = map(_move_high, os.pipe())
        self._from_browser, its_output = map(_move_high, os.pipe())
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate((null, null, null, its_input, its_output))]
        arguments = [executable, *_FLAGS, f"--user-data-dir={self._home}", "about:blank"]
        try:
            self._pid = os.posix_spawn(executable, arguments, os.environ, file_actions=actions, setpgroup=0)
        finally:
            for fd in (its_input, its_output, null):
                os.close(fd)
        for fd in (self._to_browser, self._from_browser):
            os.set_blocking(fd, False)
        self._read = bytearray()
        self._last_id = 0
        self._session: str | None = None

    def _open(self, page: str, deadline: float) -> None:
        targets = self._call("Target.getTargets", deadline)["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", deadline, targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable", deadline)
        self._call("Page.navigate", deadline, url=page)
        while self._receive(deadline).get("method") != "Page.loadEventFired":
            pass

    def _call(self, method: str, deadline: float, **parameters: Any) -> dict[str, Any]:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._send(json.dumps(message).encode() + b"\0", deadline)
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last_id:
                if "error" in answer:
                    raise EngineBroken(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(self._to_browser, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._to_browser, rest) :]
            except OSError as error:
                raise EngineBroken(f"Chromium ended: {error}") from error

    def _receive(self, deadline: float) -> dict[str, Any]:
        searched = 0
        while (end := self._read.find(b"\0", searched)) < 0:
            searched = len(self._read)
            if searched > _LONGEST_MESSAGE:
                raise EngineBroken("the picture is too large")
            self._wait(self._from_browser, select.POLLIN, deadline)
            data = os.read(self._from_browser, _LONGEST_READ)
            if not data:
                raise EngineBroken("Chromium ended")
            self._read += data
        message = json.loads(self._read[:end])
        del self._read[: end + 1]
        return message

    @staticmethod
    def _wait(fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EngineBroken("it took too long")


def _move_high(fd: int) -> int:
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    os.close(fd)
    return high


def _plotly_script() -> Path | None:
    # Found without importing it, which would cost this process as much memory as all the rest of it.
    spec = importlib.util.find_spec("plotly")
    places = spec.submodule_search_locations if spec is not None else None
    script = Path(next(iter(places)), "package_data", "plotly.min.js") if places else None
    return script if script is not None and script.is_file() else None


def _complaint(details: dict[str, Any]) -> str:
    exception = details.get("exception", {})
    text = exception.get("description") or exception.get("value") or details.get("text") or "the figure has no picture"
    return str(text).splitlines()[0]
