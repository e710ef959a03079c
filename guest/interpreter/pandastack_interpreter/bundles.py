"""MIME bundles as the wire has them: every value a string, every size bounded."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

#: Longest text/plain; a longer one is cut with a mark.
MAX_TEXT = 1024 * 1024
#: Longest value of any other type, and longest bundle, in bytes on the wire; what exceeds it is replaced by a note.
MAX_VALUE = 24 * 1024 * 1024
MAX_BUNDLE = 30 * 1024 * 1024
#: Most forms of one value, and longest name of anything.
MAX_FORMS = 64
MAX_NAME = 1000
#: JSON writes a control character in this many bytes.
_LONGEST_ESCAPE = 6
#: Kinds whose text form is base64; Python's own encoder puts line breaks into it.
_BINARY = ("image/", "audio/", "video/", "application/pdf")


def to_wire(data: dict[str, Any]) -> dict[str, str]:
    """Turns a formatter's bundle into strings: binary as base64, JSON as strict JSON text."""
    bundle: dict[str, str] = {}
    total = 0
    notes = []
    for mime, value in list(data.items())[:MAX_FORMS]:
        mime = cut(str(mime), MAX_NAME)
        text = _value(mime, value)
        if mime == "text/plain":
            text = cut(text, MAX_TEXT)
        size = _wire_size(text)
        if size > MAX_VALUE or total + size > MAX_BUNDLE:
            notes.append(f"[{mime} of {len(text)} characters dropped: too large]")
            continue
        total += size
        bundle[mime] = text
    if notes:
        bundle["text/plain"] = "\n".join([bundle.get("text/plain", ""), *notes]).lstrip("\n")
    if _is_bare_figure(bundle):
        del bundle["text/plain"]
    return bundle


def _wire_size(text: str) -> int:
    if len(text) < MAX_TEXT // _LONGEST_ESCAPE:
        # So short that its exact size does not matter.
        return len(text)
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def _is_bare_figure(bundle: dict[str, str]) -> bool:
    # The text of a figure says nothing that the picture does not, and `Execution.text` of the published clients would take it for
    # the answer.
    return "image/png" in bundle and bundle.get("text/plain", "").startswith("<Figure size ")


def _value(mime: str, value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if mime == "application/json" or (mime.startswith("application/") and mime.endswith("+json")):
        return _json(value)
    text = value if isinstance(value, str) else str(value)
    if mime.startswith(_BINARY) and mime != "image/svg+xml":
        return text.replace("\n", "")
    return text


def _json(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            pass
    return json.dumps(_strict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _strict(value: Any, depth: int = 0) -> Any:
    """NaN and infinities have no JSON form; strict parsers fail on Python's."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > 200:
        return str(value)
    if isinstance(value, dict):
        return {str(key): _strict(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item, depth + 1) for item in value]
    return value


def _plain(value: Any) -> Any:
    # numpy scalars and arrays, pandas timestamps and whatever else has a plain twin.
    for method in ("tolist", "isoformat"):
        convert = getattr(value, method, None)
        if callable(convert):
            return _strict(convert())
    return str(value)


def cut(text: str, limit: int) -> str:
    """Shortens a text in its middle, with a mark that says by how much."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"
