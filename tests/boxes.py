"""Sandboxes with their snapshots, forks and hibernation through plain HTTP, which shows all that the SDK drops."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from cells import Context
from server import Api


class Box:
    """A sandbox through plain HTTP."""

    def __init__(self, api: Api, view: dict):
        self.api, self.view = api, view
        self.id: str = view["id"]

    @classmethod
    def create(cls, api: Api, **fields) -> "Box":
        answer = api.post("/sandboxes", {"ttl_seconds": 900, **fields})
        assert answer.status_code == 201, answer.text
        return cls(api, answer.json())

    def get(self, part: str = "", **options) -> requests.Response:
        return self.api.get(f"/sandboxes/{self.id}{part}", **options)

    def post(self, verb: str, body: object = None) -> requests.Response:
        return self.api.post(f"/sandboxes/{self.id}/{verb}", body)

    def do(self, verb: str, body: object = None) -> dict | None:
        """A request that has to succeed; what it answers."""
        answer = self.post(verb, body)
        assert answer.ok, f"{verb}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    @property
    def status(self) -> str:
        answer = self.get()
        assert answer.status_code == 200, answer.text
        return answer.json()["status"]

    def context(self, **fields) -> Context:
        return Context(self.api, self.id, **fields)

    def same(self, context: Context) -> Context:
        """What became of another sandbox's context in this copy of it."""
        return Context.known(self.api, self.id, context.id)

    def exec(self, line: str, **fields) -> str:
        done = self.do("exec", {"cmd": line, **fields})
        assert done["exit_code"] == 0, (line, done)
        return done["stdout"]

    def write(self, path: str, text: str) -> None:
        answer = self.api.put(f"/sandboxes/{self.id}/fs", params={"path": path}, data=text.encode())
        assert answer.ok, answer.text

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""
        answer = self.get("/fs", params={"path": path})
        assert answer.status_code == 200 or answer.json().get("code") == "file.not_found", answer.text
        return answer.text if answer.ok else None

    def snapshot(self, **fields) -> dict:
        answer = self.post("snapshots", fields or None)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def fork(self, verb: str = "fork", **fields) -> list["Box"]:
        answer = self.post(verb, fields)
        assert answer.status_code == 201, answer.text
        return [Box(self.api, child) for child in answer.json()["children"]]

    def events(self) -> list[dict]:
        answer = self.get("/events", params={"tail": 100})
        assert answer.status_code == 200, answer.text
        return answer.json()["events"]

    def kill(self) -> None:
        answer = self.api.delete(f"/sandboxes/{self.id}")
        assert answer.status_code == 204, answer.text


@contextmanager
def killed(*boxes: Box) -> Iterator[None]:
    """Ends the sandboxes afterwards, those of them that are still there."""
    try:
        yield
    finally:
        for box in boxes:
            assert box.api.delete(f"/sandboxes/{box.id}").status_code in (204, 404)


def listed(api: Api) -> dict[str, str]:
    """Ids and statuses of all sandboxes."""
    return {one["id"]: one["status"] for one in api.get("/sandboxes").json()}


def snapshots(api: Api, **query) -> list[dict]:
    answer = api.get("/snapshots", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["snapshots"]


def delete_snapshots(api: Api) -> None:
    """Removes all, those of forks too, which are kept for a while."""
    for one in snapshots(api):
        assert api.delete(f"/snapshots/{one['id']}").status_code in (200, 404)


def image_file(directory: Path, name: str) -> Path:
    """A file of a snapshot, which may be kept as what differs from the template's."""
    whole, delta = directory / name, directory / f"{name}.delta"
    return delta if delta.exists() else whole


def flip_a_byte(file: Path) -> None:
    """In the middle of it. Done twice, it is what it was."""
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        byte = opened.read(1)
        opened.seek(-1, 1)
        opened.write(bytes([byte[0] ^ 1]))


def refused(answer: requests.Response, *statuses: int, code: str = "", says: str = "") -> dict:
    """An honest refusal: its status, its code, a sentence, and what that or its details say."""
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text[:500]}"
    body = answer.json()
    assert body["code"].startswith(code), body
    assert body["error"] and says.lower() in (body["error"] + str(body.get("detail"))).lower(), body
    return body
