"""Pictures of charts that are no pictures themselves, from the sandbox's renderer.

Each is an extra: without it the chart has its other forms.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ..renderer import client
from ..renderer.engine import NotRendered

#: Longest that the charts of one cell may wait for their pictures, in seconds: less than a cell's usual time limit.
MAX_SECONDS = 25.0
#: Longest specification, as JSON.
MAX_SPEC = 16 * 1024 * 1024

_seconds_left = MAX_SECONDS
_has_complained = False
_is_warm = False
#: An interrupt hit a wait for a picture: it is raised once the other forms of the chart are told.
_is_interrupted = False


def register(shell: Any) -> None:
    """Follows the cells of a shell."""
    shell.events.register("pre_run_cell", _begin_cell)


def _begin_cell(info: Any) -> None:
    global _seconds_left, _is_warm, _is_interrupted
    _seconds_left, _is_interrupted = MAX_SECONDS, False
    # Chromium takes seconds to start; meanwhile the cell prepares its data.
    if not _is_warm and "plotly" in (getattr(info, "raw_cell", None) or ""):
        _is_warm = True
        client.warm("plotly")


def picture(kind: str, spec: dict[str, Any], length: int, **options: Any) -> str | None:
    """The PNG in base64, or None. ``length`` is that of the specification's JSON. The first failure of a context is told on stderr."""
    global _seconds_left, _is_warm, _is_interrupted
    started = time.monotonic()
    try:
        if length > MAX_SPEC:
            raise NotRendered(f"its specification of {length} characters is too long")
        if _seconds_left <= 0:
            raise NotRendered("the pictures of this cell took too long")
        _is_warm = True
        return client.render(kind, spec, _seconds_left, format="png", **options)
    except NotRendered as error:
        _complain(str(error))
        return None
    except KeyboardInterrupt:
        _is_interrupted = True
        return None
    finally:
        _seconds_left -= time.monotonic() - started


def raise_interrupt() -> None:
    """Raises the interrupt that a picture was given up for, if there was one."""
    global _is_interrupted
    if _is_interrupted:
        _is_interrupted = False
        raise KeyboardInterrupt


def _complain(reason: str) -> None:
    global _has_complained
    if not _has_complained:
        _has_complained = True
        sys.stderr.write(f"note: no picture of a chart, only its other forms: {reason.splitlines()[0] if reason else 'no reason given'}\n")
