"""What models put around code, and what is left without it."""

from __future__ import annotations

import re
from collections.abc import Iterable


def unfenced(code: str, names: Iterable[str]) -> str:
    """Takes off a byte order mark and a fence around all of the code, which may have one of a language's names."""
    code = code.removeprefix("\ufeff")
    if "```" not in code and "~~~" not in code:
        return code
    name = "|".join(map(re.escape, names))
    fenced = re.fullmatch(rf"\s*(?P<fence>```+|~~~+)({name})?[ \t]*\r?\n(?P<code>.*\n)[ \t]*(?P=fence)\s*", code, re.S | re.I)
    return fenced["code"] if fenced else code
