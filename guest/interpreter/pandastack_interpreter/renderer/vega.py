"""Pictures of Vega-Lite charts: vl-convert, in a process of its own, since what hangs in there can only be killed.

V8 reserves much more address space than a context has, so it must not run there.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..channel import Channel, ChannelClosed, Message
from .engine import MAX_PIXELS, MAX_SIDE, EngineBroken, NotRendered

_SIZE = re.compile(r'<svg[^>]* width="([0-9.e+]+)" height="([0-9.e+]+)"')


class Vega:
    """The process that converts. For one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, _deadline: float) -> None:
        """Starts it unless it runs. Raises ``EngineBroken``."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        if importlib.util.find_spec("vl_convert") is None:
            raise EngineBroken("vl-convert-python is not installed")
        self._socket, theirs = socket.socketpair()
        self._channel = Channel(self._socket)
        with theirs:
            command = [sys.executable, "-P", "-m", __name__, "--channel-fd", str(theirs.fileno())]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)

    def render(self, spec: dict[str, Any], options: dict[str, Any], deadline: float) -> str:
        """The picture of a chart, in base64, or as text if it is an SVG. Raises as ``Chromium.render`` does."""
        self.start(deadline)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._channel.send({"spec": spec, "format": options["format"], "scale": options["scale"]})
            answer, _fds = self._channel.receive()
        except ChannelClosed as error:
            raise EngineBroken("it took too long" if time.monotonic() >= deadline else f"vl-convert ended: {error}") from error
        if "data" not in answer:
            raise NotRendered(str(answer.get("message")))
        return str(answer["data"])

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        self._channel.close()


def _convert(request: Message) -> str:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(request["spec"])
    if request["format"] == "svg":
        return svg
    png = vl_convert.svg_to_png(svg, scale=min(request["scale"], _largest_scale(svg)))
    return base64.b64encode(png).decode("ascii")


def _largest_scale(svg: str) -> float:
    # A chart says only once it is laid out how large it is.
    size = _SIZE.match(svg)
    if size is None:
        raise ValueError("the chart has no size")
    width, height = (max(1.0, float(side)) for side in size.groups())
    return min(MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))


def main(arguments: list[str] | None = None) -> int:
    """Converts until the socket closes."""
    parser = argparse.ArgumentParser(prog="vega", description=__doc__)
    parser.add_argument("--channel-fd", type=int, required=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=parser.parse_args(arguments).channel_fd))
    while True:
        try:
            request, _fds = channel.receive()
        except ChannelClosed:
            return 0
        try:
            answer = {"data": _convert(request)}
        except Exception as error:
            answer = {"message": str(error).strip()}
        channel.send(answer)


if __name__ == "__main__":
    sys.exit(main())
