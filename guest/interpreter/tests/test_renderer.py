"""The renderer: its conversation, with engines that do as they are told, and its real engines where they are installed."""

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import PACKAGE_ROOT, PATIENCE, Channel

from pandastack_interpreter.renderer import client, server
from pandastack_interpreter.renderer.chromium import _NAMES, Chromium
from pandastack_interpreter.renderer.engine import EngineBroken, NotRendered
from pandastack_interpreter.renderer.vega import Vega

BAR = {"data": [{"type": "bar", "x": ["a", "b"], "y": [1, 2]}], "layout": {}}
VEGA = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.1.0.json",
    "data": {"values": [{"a": 1, "b": 2}]},
    "mark": "point",
    "encoding": {"x": {"field": "a", "type": "quantitative"}},
}
OPTIONS = {"format": "png", "width": 700, "height": 500, "scale": 1}
PNG = b"\x89PNG\r\n\x1a\n"


class Engine:
    """Draws what it is told to, and counts."""

    def __init__(self) -> None:
        self.starts = self.kills = 0
        self.at_once = self.most_at_once = 0

    def start(self, _deadline: float) -> None:
        self.starts += 1

    def render(self, spec: dict[str, Any], _options: dict[str, Any], deadline: float) -> str:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if "error" in spec:
                raise NotRendered(spec["error"])
            if "hang" in spec:
                time.sleep(max(0.0, deadline - time.monotonic()))
                raise EngineBroken("it took too long")
            if "bug" in spec:
                raise KeyError("bug")
            return "<svg/>" if spec.get("svg") else base64.b64encode(PNG).decode()
        finally:
            self.at_once -= 1

    def kill(self) -> None:
        self.kills += 1


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A renderer in this process whose charts all go to one fake engine."""
    engine, path = Engine(), str(tmp_path / "renderer.sock")
    running, listener = server.Renderer(), server._listen(path)
    running._workers = {"plotly": server.Worker(engine)}  # type: ignore[arg-type, dict-item]
    monkeypatch.setenv(client.SOCKET, path)
    threading.Thread(target=_serve, args=(running, listener), daemon=True).start()
    yield engine
    listener.close()


def _serve(running: server.Renderer, listener: socket.socket) -> None:
    try:
        running.serve(listener)
    except OSError:
        return


def test_a_picture_comes_in_base64(engine: Engine) -> None:
    assert base64.b64decode(client.render("plotly", {}, PATIENCE)) == PNG
    assert base64.b64decode(client.render("plotly", {"svg": True}, PATIENCE, format="svg")) == b"<svg/>"


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "nope"},
        {"kind": "vega", "format": "pdf"},
        {"spec": 5},
        {"width": 0},
        {"width": -1},
        {"width": True},
        {"height": "7"},
        {"height": 1e9},
        {"scale": 100},
        {"width": 8000, "height": 8000, "scale": 1},
        {"width": 5000, "scale": 2},
        {"op": "nope"},
    ],
)
def test_what_cannot_be_is_refused_and_the_connection_goes_on(engine: Engine, bad: dict[str, Any]) -> None:
    with client._connect() as connection:
        connection.settimeout(PATIENCE)
        channel = Channel(connection)
        channel.send({"op": "render", "kind": "plotly", "spec": {}, **bad})
        answer, _fds = channel.receive()
        assert answer["op"] == "failed" and answer["message"]
        channel.send({"op": "render", "kind": "plotly", "spec": {}})
        assert channel.receive()[0]["op"] == "rendered"
    assert engine.kills == 0


def test_a_bad_chart_leaves_the_engine_running(engine: Engine) -> None:
    with pytest.raises(NotRendered, match="no such trace"):
        client.render("plotly", {"error": "no such trace"}, PATIENCE)
    assert engine.kills == 0


@pytest.mark.parametrize("spec", [{"hang": 1}, {"bug": 1}])
def test_an_engine_that_hangs_or_breaks_is_killed_and_used_again(engine: Engine, spec: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(server, "MAX_SECONDS", 0.2)
    with pytest.raises(NotRendered):
        client.render("plotly", spec, PATIENCE)
    assert engine.kills == 1
    monkeypatch.undo()
    assert Engine.render(engine, {}, {}, 0.0)


def test_charts_of_one_kind_are_drawn_one_after_another(engine: Engine) -> None:
    threads = [threading.Thread(target=client.render, args=("plotly", {}, PATIENCE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert engine.most_at_once == 1


def test_warming_starts_the_engine_and_answers_nothing(engine: Engine) -> None:
    client.warm("plotly")
    end = time.monotonic() + PATIENCE
    while engine.starts == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert engine.starts == 1


def test_garbage_ends_its_own_connection_only(engine: Engine) -> None:
    for garbage in (b"\xff\xff\xff\xffrest", b"\x00\x00\x00\x01x", b"\x00\x00", b"\x00\x00\x00\x025\n"):
        with client._connect() as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    assert client.render("plotly", {}, PATIENCE)


def test_nobody_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.SOCKET, "/nonexistent/socket")
    with pytest.raises(NotRendered, match="does not answer"):
        client.render("plotly", {}, PATIENCE)
    client.warm("plotly")


def test_a_browser_that_says_nothing_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    silent = tmp_path / _NAMES[0]
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    browser = Chromium()
    with pytest.raises(EngineBroken, match="too long"):
        browser.start(time.monotonic() + 0.3)
    pid, home = browser._pid, browser._home
    browser.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not Path(home).exists()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """The program itself, with a listening socket that it is given."""
    path = str(tmp_path_factory.mktemp("renderer") / "renderer.sock")
    with server._listen(path) as listener:
        command = [sys.executable, "-m", "pandastack_interpreter.renderer", "--listen-fd", str(listener.fileno())]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], env=environment)
    os.environ[client.SOCKET] = path
    yield process
    del os.environ[client.SOCKET]
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


@pytest.fixture
def plotly(real: subprocess.Popen[bytes]) -> None:
    if not any(map(shutil.which, _NAMES)):
        pytest.skip("skipped: no Chromium is installed")
    pytest.importorskip("plotly")


@pytest.fixture
def vega(real: subprocess.Popen[bytes]) -> None:
    pytest.importorskip("vl_convert")


def size_of(picture: str) -> tuple[int, int]:
    data = base64.b64decode(picture)
    assert data[:8] == PNG
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.usefixtures("plotly")
def test_plotly_for_real() -> None:
    assert size_of(client.render("plotly", BAR, PATIENCE)) == (700, 500)
    assert size_of(client.render("plotly", BAR, PATIENCE, width=300, height=200, scale=2)) == (600, 400)
    assert base64.b64decode(client.render("plotly", BAR, PATIENCE, format="svg")).startswith(b"<svg")
    with pytest.raises(NotRendered, match="topojson"):
        client.render("plotly", {"data": [{"type": "choropleth", "locations": ["FRA"], "z": [2]}], "layout": {}}, PATIENCE)
    assert size_of(client.render("plotly", {"data": [{"type": "nope"}], "layout": {}}, PATIENCE)) == (700, 500)


@pytest.mark.usefixtures("plotly")
def test_a_browser_that_ended_between_two_charts_is_started_again() -> None:
    browser = Chromium()
    deadline = time.monotonic() + PATIENCE
    try:
        browser.render(BAR, OPTIONS, deadline)
        os.killpg(browser._pid, signal.SIGKILL)
        os.waitid(os.P_PID, browser._pid, os.WEXITED | os.WNOWAIT)
        assert size_of(browser.render(BAR, OPTIONS, deadline)) == (700, 500)
    finally:
        browser.kill()


@pytest.mark.usefixtures("vega")
def test_a_converter_that_ended_between_two_charts_is_started_again() -> None:
    converter = Vega()
    deadline = time.monotonic() + PATIENCE
    try:
        picture = converter.render(VEGA, OPTIONS, deadline)
        converter._process.kill()
        converter._process.wait()
        assert converter.render(VEGA, OPTIONS, deadline) == picture
    finally:
        converter.kill()


@pytest.mark.usefixtures("vega")
def test_vega_for_real() -> None:
    width, height = size_of(client.render("vega", VEGA, PATIENCE))
    assert size_of(client.render("vega", VEGA, PATIENCE, scale=2)) == (2 * width, 2 * height)
    assert base64.b64decode(client.render("vega", VEGA, PATIENCE, format="svg")).startswith(b"<svg")
    with pytest.raises(NotRendered):
        client.render("vega", {"mark": "nope"}, PATIENCE)


@pytest.mark.usefixtures("vega")
def test_a_vega_chart_that_would_fill_the_memory_is_drawn_smaller() -> None:
    width, height = size_of(client.render("vega", {**VEGA, "width": 20_000, "height": 30}, PATIENCE))
    assert max(width, height) <= 8192
