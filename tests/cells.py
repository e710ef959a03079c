"""Code contexts and commands through plain HTTP, which shows all that the published SDK drops."""

import base64
import io
import json
import shlex
from dataclasses import dataclass, field

from PIL import Image

from server import Api


@dataclass
class Cell:
    """The answer to a cell, as the REST API gave it."""

    status: int
    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    error_name: str | None = None
    error_value: str | None = None
    results: list[dict[str, str]] = field(default_factory=list)
    late_output: list[dict] = field(default_factory=list)
    context_state: str | None = None
    body: dict = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """The main result as text."""
        return self.results[0].get("text/plain") if self.results else None

    @property
    def pngs(self) -> list[bytes]:
        return [base64.b64decode(result["image/png"]) for result in self.results if "image/png" in result]

    @property
    def quiet(self) -> bool:
        return self.status == 200 and not (self.results or self.stdout or self.stderr or self.error)

    @property
    def timed_out(self) -> bool:
        return self.status == 504 and "timeout" in (self.error or "")


class Context:
    """A code context through plain HTTP."""

    def __init__(self, api: Api, sandbox: str, **fields):
        self.api, self.sandbox = api, sandbox
        answer = api.post(f"/sandboxes/{sandbox}/repl/sessions", fields)
        assert answer.status_code == 201, answer.text
        self.id = answer.json()["id"]

    @classmethod
    def known(cls, api: Api, sandbox: str, identity: str) -> "Context":
        """One that exists already."""
        context = cls.__new__(cls)
        context.api, context.sandbox, context.id = api, sandbox, identity
        return context

    def run(self, code: str, timeout: float | None = None, **fields) -> Cell:
        answer = self.api.run(self.sandbox, self.id, code, timeout, **fields)
        body = answer.json()
        known = {name: body[name] for name in Cell.__dataclass_fields__ if name in body}
        return Cell(status=answer.status_code, body=body, **known)

    def close(self) -> None:
        assert self.api.delete(f"/sandboxes/{self.sandbox}/repl/sessions/{self.id}").status_code == 204


def execute(api: Api, sandbox: str, words: list[str], **fields) -> dict:
    """Runs a command without a shell around it; the answer with its HTTP status."""
    answer = api.post(f"/sandboxes/{sandbox}/exec", {"cmd": shlex.join(words), **fields})
    return answer.json() | {"status": answer.status_code}


def picture(png: bytes) -> Image.Image:
    """Decodes a picture and checks that something is drawn on it."""
    image = Image.open(io.BytesIO(png))
    image.load()
    colours = image.convert("RGB").getcolors(maxcolors=1 << 20)
    assert image.format == "PNG" and colours is not None and len(colours) > 2, "a blank picture"
    return image


def strict_json(text: str) -> object:
    """Parses JSON without the NaN and Infinity that Python's parser lets through."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)
