"""Pillow: an image of any mode is one PNG."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

#: Larger images are shown smaller, in pixels.
MAX_PIXELS = 16 * 1024 * 1024
_MAX_SIDE = 8192
#: Modes that PNG has.
_OF_PNG = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
#: Modes whose values have no mean.
_NOT_AVERAGED = frozenset({"1", "P", "I;16"})
_NEAREST = {"RGBa": "RGBA", "PA": "RGBA", "La": "LA"}
#: Modes of one channel that no screen has as many steps for.
_OF_MANY_STEPS = frozenset({"I", "F"})


def register(shell: Any) -> None:
    """Gives images this form, and not that of a JPEG besides."""
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type_by_name("PIL.Image", "Image", png_of)
    formatters["image/jpeg"].for_type_by_name("PIL.Image", "Image", lambda _image: None)


def png_of(image: Any) -> bytes | None:
    """The image as a PNG; none of one without pixels."""
    width, height = image.size
    if not width or not height:
        return None
    if width * height > MAX_PIXELS or max(width, height) > _MAX_SIDE:
        factor = max(math.sqrt(width * height / MAX_PIXELS), max(width, height) / _MAX_SIDE)
        image = _of_png_mode(image)
        image = (image.convert("RGB") if image.mode in _NOT_AVERAGED else image).reduce(math.ceil(factor))
    picture = BytesIO()
    _of_png_mode(image).save(picture, "PNG", compress_level=1)
    return picture.getvalue()


def _of_png_mode(image: Any) -> Any:
    if image.mode in _OF_PNG:
        return image
    if image.mode in _OF_MANY_STEPS:
        return _spread(image)
    return image.convert(_NEAREST.get(image.mode, "RGB"))


def _spread(image: Any) -> Any:
    """The smallest value becomes black and the largest white, as for a plot of the array."""
    image = image.convert("F")
    low, high = image.getextrema()
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return image.convert("L")
    step = 255 / (high - low)
    return image.point(lambda value: value * step + -low * step).convert("L")
