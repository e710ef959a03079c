"""Texts of which only head and tail are kept."""

from __future__ import annotations

#: The mark that says how much was cut must leave this many characters of the text; a shorter mark stands in for it otherwise.
_LEAST_KEPT = 12
_SHORT_MARK = "..."


def shorten(text: str, max_chars: int) -> str:
    """Head and tail of a text with a mark between them that says how much was cut; never longer than ``max_chars``."""
    if len(text) <= max_chars:
        return text
    lines = "\n" in text
    kept = max_chars - len(_mark(len(text), lines))
    if kept >= _LEAST_KEPT:
        head, tail = _ends(text, kept, lines)
        return head + _mark(len(text) - len(head) - len(tail), lines) + tail
    kept = max_chars - len(_SHORT_MARK)
    if kept < 2:
        return text[: max(0, max_chars)]
    return text[: kept - kept // 2] + _SHORT_MARK + text[len(text) - kept // 2 :]


def _mark(count: int, lines: bool) -> str:
    mark = f"[... {count:,} characters cut ...]"
    return f"\n{mark}\n" if lines else mark


def _ends(text: str, kept: int, lines: bool) -> tuple[str, str]:
    head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
    if lines:
        # Whole lines, unless that would cost more than a quarter.
        end, start = head.rfind("\n"), tail.find("\n") + 1
        if end > len(head) * 3 // 4:
            head = head[:end]
        if 0 < start < len(tail) // 4:
            tail = tail[start:]
    return head, tail
