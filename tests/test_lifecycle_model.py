"""A real sandbox goes through the histories that the model of the server was asked about, and answers as it says."""

import json
from pathlib import Path

import pytest

from cells import Context
from server import Api, Server

HISTORIES = json.loads((Path(__file__).parent / "lifecycle_histories.json").read_text())


@pytest.mark.parametrize("number", range(len(HISTORIES)))
def test_a_real_sandbox_goes_through_the_models_history(server: Server, api: Api, number: int):
    with server.client().sandboxes.create(ttl_seconds=900) as sandbox:
        path = f"/sandboxes/{sandbox.id}"
        context = Context(api, sandbox.id)
        context.run("done = []")
        done: list[int] = []
        for index, step in enumerate(HISTORIES[number]):
            if step["event"] == "request":
                answer = api.post(f"{path}/repl/sessions/{context.id}/run", {"code": f"done.append({index}); done"})
                if answer.ok:
                    done.append(index)
                    assert answer.json()["results"][0]["text/plain"] == str(done)
            else:
                answer = api.request("POST", f"{path}/{step['event']}")
            assert answer.ok == step["allowed"], (index, step, answer.text)
            assert step["allowed"] or answer.status_code == 409
            assert api.get(path).json()["status"] == step["status"], (index, step)
        api.request("POST", f"{path}/wake")
        assert context.run("done").text == str(done), "whatever happened, nothing acknowledged is lost"
