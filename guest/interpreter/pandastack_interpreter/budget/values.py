"""Containers and records: how many items there are, and as many of them as fit, each shortened by itself."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from .text import shorten

#: Deeper ones are only counted; a container may be in itself.
_DEEPEST = 20
#: What one item is given before another one is left out, in characters.
_LEAST_ITEM, _MOST_ITEM = 12, 80
#: How many times that an item is given that is a container itself.
_CONTAINER_SHARE = 4
#: Larger sets and counters are shown in whatever order they are in.
_MOST_SORTED = 1000
#: Below this a container is only counted.
_LEAST_ROOM = 12
_SEPARATOR = ", "


@dataclasses.dataclass
class Parts:
    """A container taken apart. With a joint the items are pairs; with ``=`` their keys are names."""

    opening: str
    closing: str
    items: Any
    count: int
    joint: str = ""
    has_order: bool = True


def _named(value: Any, opening: str, closing: str) -> tuple[str, str]:
    return f"{type(value).__name__}({opening}", f"{closing})"


def _of_list(value: Any) -> Parts:
    return Parts("[", "]", value, len(value))


def _of_tuple(value: Any) -> Parts:
    return Parts("(", ",)" if len(value) == 1 else ")", value, len(value))


def _of_sequence(value: Any) -> Parts:
    return Parts(*_named(value, "[", "]"), value, len(value))


def _of_set(value: Any) -> Parts:
    opening, closing = ("{", "}") if type(value) is set else _named(value, "{", "}")
    return Parts(opening, closing, value, len(value), has_order=False)


def _of_dict(value: Any) -> Parts:
    return Parts("{", "}", value.items(), len(value), ": ")


def _of_named_dict(value: Any) -> Parts:
    ranked = isinstance(value, collections.Counter) and len(value) <= _MOST_SORTED
    items = value.most_common() if ranked else value.items()
    return Parts(*_named(value, "{", "}"), items, len(value), ": ")


#: By the method that writes them, so that a type with a text of its own is none of these.
_CONTAINERS: dict[Any, Callable[[Any], Parts]] = {
    list.__repr__: _of_list,
    tuple.__repr__: _of_tuple,
    set.__repr__: _of_set,
    frozenset.__repr__: _of_set,
    dict.__repr__: _of_dict,
    collections.OrderedDict.__repr__: _of_named_dict,
    collections.Counter.__repr__: _of_named_dict,
    collections.defaultdict.__repr__: _of_named_dict,
    collections.deque.__repr__: _of_sequence,
    type({}.keys()).__repr__: _of_sequence,
    type({}.values()).__repr__: _of_sequence,
    type({}.items()).__repr__: _of_sequence,
}


def parts_of(value: Any) -> Parts | None:
    """The parts of a container or record; None of anything else and of what writes itself in a way of its own."""
    write = type(value).__repr__
    if hasattr(type(value), "_repr_pretty_") or hasattr(type(value), "_repr_mimebundle_"):
        return None
    try:
        take_apart = _CONTAINERS.get(write)
    except TypeError:
        return None
    if take_apart is not None:
        return take_apart(value)
    fields = _fields(value, write)
    if fields is None:
        return None
    return Parts(f"{type(value).__name__}(", ")", fields, len(fields), "=")


def _fields(value: Any, write: Any) -> list[tuple[str, Any]] | None:
    kind, module = type(value), getattr(write, "__module__", "")
    if module == "pydantic.main":
        return [(str(name), item) for name, item in value.__repr_args__()]
    if module == "collections" and isinstance(value, tuple):
        return list(zip(kind._fields, value, strict=True))
    # The generated method is the only one that is wrapped against recursion.
    if "__dataclass_fields__" in vars(kind) and hasattr(write, "__wrapped__"):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr]
    return None


def _label(value: Any) -> str:
    """What a value is, in a few words that cost nothing to find."""
    name, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"<{name} of shape {shape}>"
    return f"<{name}>"


class Writer:
    """Writes values. Asks each object for its text once, for that may take long or differ from call to call."""

    def __init__(self) -> None:
        # By id, and with the object, so that its id is not used again.
        self._texts: dict[int, tuple[Any, str]] = {}
        #: Whole texts of containers that were tried, and within how much; None if it was not enough.
        self._tried: dict[int, tuple[Any, str | None, int]] = {}

    def fit(self, value: Any, limit: int, depth: int = 0) -> str:
        """A text of at most ``limit`` characters."""
        whole = self._whole(value, limit, depth)
        if whole is not None:
            return whole
        if isinstance(value, (str, bytes, bytearray)):
            return self._long_string(value, limit)
        parts = parts_of(value)
        if parts is None:
            return self._long_object(value, limit)
        room = limit - len(parts.opening) - len(parts.closing)
        if depth >= _DEEPEST or room < _LEAST_ROOM:
            items = "item" if parts.count == 1 else "items"
            return shorten(f"{parts.opening}{parts.count:,} {items}{parts.closing}", limit)
        mark = len(self._mark(parts.count, parts.count)) + len(_SEPARATOR)
        head, tail = self._choose(parts, room, mark)
        if len(head) + len(tail) < parts.count:
            room -= mark
        shares = self._shares([*head, *tail], parts, room)
        texts = [self._part(item, parts, share, depth) for item, share in zip([*head, *tail], shares, strict=True)]
        cut = parts.count - len(texts)
        if cut:
            texts.insert(len(head), self._mark(cut, parts.count))
        return shorten(parts.opening + _SEPARATOR.join(texts) + parts.closing, limit)

    @staticmethod
    def _mark(cut: int, count: int) -> str:
        return f"... {cut:,} more of {count:,}"

    @staticmethod
    def _long_string(value: Any, limit: int) -> str:
        # Not the text of all of it, which may be large.
        edge = limit + 1
        inner = repr(value if len(value) <= 2 * edge else value[:edge] + value[-edge:])
        missing = max(0, len(value) - 2 * edge)
        return shorten(inner, limit) if not missing else _shorten_more(inner, limit, missing)

    def _long_object(self, value: Any, limit: int) -> str:
        if isinstance(getattr(value, "shape", None), tuple):
            return shorten(_label(value), limit)
        return shorten(self._text(value), limit)

    def _text(self, value: Any) -> str:
        known = self._texts.get(id(value))
        if known is None:
            try:
                text = repr(value)
            except Exception:
                text = _label(value)
            known = self._texts[id(value)] = value, text
        return known[1]

    def _whole(self, value: Any, limit: int, depth: int) -> str | None:
        """All of a value, or None if that is longer than ``limit`` or too deep. Touches at most ``limit`` items."""
        if isinstance(value, (str, bytes, bytearray)) and len(value) + 2 > limit:
            return None
        _, text, most = self._tried.get(id(value), (None, None, -1))
        if text is None and limit > most:
            parts = parts_of(value)
            text = self._text(value) if parts is None else self._whole_container(parts, limit, depth)
            self._tried[id(value)] = value, text, limit
        return text if text is not None and len(text) <= limit else None

    def _whole_container(self, parts: Parts, limit: int, depth: int) -> str | None:
        if depth > _DEEPEST or parts.count * 2 > limit:
            return None
        texts: list[str] = []
        room = limit - len(parts.opening) - len(parts.closing) + len(_SEPARATOR)
        for item in parts.items:
            text = self._whole_part(item, parts, room - len(_SEPARATOR), depth)
            if text is None:
                return None
            texts.append(text)
            room -= len(text) + len(_SEPARATOR)
        return parts.opening + _SEPARATOR.join(texts) + parts.closing if room >= 0 else None

    def _whole_part(self, item: Any, parts: Parts, limit: int, depth: int) -> str | None:
        if not parts.joint:
            return self._whole(item, limit, depth + 1)
        key = item[0] if parts.joint == "=" else self._whole(item[0], limit, depth + 1)
        if key is None or len(key) > limit:
            return None
        value = self._whole(item[1], limit - len(key) - len(parts.joint), depth + 1)
        return None if value is None else key + parts.joint + value

    def _choose(self, parts: Parts, room: int, mark: int) -> tuple[list[Any], list[Any]]:
        """As many items as there is room for, of both ends: all of them, or so many that ``mark`` characters are left."""
        floor = max(_LEAST_ITEM, min(_MOST_ITEM, room // 12))
        room += len(_SEPARATOR)
        chosen: list[tuple[Any, bool, int]] = []
        for item, at_head in islice(_both_ends(parts), parts.count):
            least = floor * _CONTAINER_SHARE if parts_of(item[1] if parts.joint else item) else floor
            whole = self._whole_part(item, parts, least, _DEEPEST // 2)
            size = (least if whole is None else len(whole)) + len(_SEPARATOR)
            if size > room:
                break
            chosen.append((item, at_head, size))
            room -= size
        if len(chosen) < parts.count:
            while len(chosen) > 1 and room < mark:
                room += chosen.pop()[2]
        chosen = chosen or [(item, True, 0) for item in islice(_in_order(parts), 1)]
        return [item for item, at_head, _ in chosen if at_head], [item for item, at_head, _ in reversed(chosen) if not at_head]

    def _shares(self, items: list[Any], parts: Parts, room: int) -> list[int]:
        """How many characters each item gets: the short ones what they need, the long ones equal parts of what is left."""
        left = room - len(_SEPARATOR) * max(0, len(items) - 1)
        # Short of all of what each might need, which would be quadratic.
        most = min(left, 4 * left // max(1, len(items)))
        wholes = (self._whole_part(item, parts, most, _DEEPEST // 2) for item in items)
        needs = [left if whole is None else len(whole) for whole in wholes]
        shares = [0] * len(items)
        for done, position in enumerate(sorted(range(len(items)), key=needs.__getitem__)):
            shares[position] = max(0, min(needs[position], left // (len(items) - done)))
            left -= shares[position]
        return shares

    def _part(self, item: Any, parts: Parts, share: int, depth: int) -> str:
        whole = self._whole_part(item, parts, share, depth)
        if whole is not None:
            return whole
        if not parts.joint:
            return self.fit(item, share, depth + 1)
        name = str(item[0]) if parts.joint == "=" else self.fit(item[0], max(share // 2, share - _LEAST_ITEM), depth + 1)
        room = share - len(name) - len(parts.joint)
        return shorten(name + parts.joint + self.fit(item[1], max(room, 3), depth + 1), share)


def _shorten_more(text: str, limit: int, missing: int) -> str:
    """Shortens a text out of whose middle ``missing`` characters were left out before."""
    mark = f"[... {missing + len(text):,} characters cut ...]"
    kept = limit - len(mark)
    if kept < _LEAST_ITEM:
        return shorten(text, limit) if limit < len(mark) else mark
    head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
    return f"{head}[... {missing + len(text) - kept:,} characters cut ...]{tail}"


def _both_ends(parts: Parts) -> Iterator[tuple[Any, bool]]:
    """Items from both ends inwards, and whether each is of the head; as long as the caller wants, not only as long as they last."""
    forward = iter(_in_order(parts))
    backward = reversed(parts.items) if parts.has_order else forward
    while True:
        for at_head in (True, not parts.has_order, True):
            item = next(forward if at_head else backward, None)
            yield item, at_head


def _in_order(parts: Parts) -> Iterable[Any]:
    if parts.has_order or parts.count > _MOST_SORTED:
        return parts.items
    try:
        return sorted(parts.items)
    except Exception:
        return parts.items
