"""The command line program against a running server."""

import json
import stat
from pathlib import Path

import pytest

from cells import picture
from server import Server, wait_until

CHART = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.show()
print("printed")
6 * 7
"""


def answer(server: Server, *arguments: object):
    return json.loads(server.run("--json", *arguments).stdout)


def test_config_file_is_private(server: Server):
    assert stat.S_IMODE(server.config_file.stat().st_mode) == 0o600
    assert server.config["api_url"] == server.url
    assert server.config["token"] == server.config["api_key"]
    assert server.config["token"].startswith("pds_") and len(server.config["token"]) == 36


def test_tokens_are_stored_hashed(server: Server):
    secret = server.key.encode()
    for file in server.data_dir.glob("pandastack.db*"):
        assert secret not in file.read_bytes(), file


def test_run(server: Server, tmp_path: Path):
    (tmp_path / "chart.py").write_text(CHART)
    done = server.run("run", tmp_path / "chart.py", "--out", tmp_path / "out")
    assert done.stdout == "printed\n42\n"
    assert done.stderr.split() == ["saved", str(tmp_path / "out/chart-1.png")]
    picture((tmp_path / "out/chart-1.png").read_bytes())
    assert answer(server, "sandbox", "ls") == []


def test_run_json_and_exit_codes(server: Server, tmp_path: Path):
    (tmp_path / "bad.py").write_text("print('before')\n1 / 0\n")
    done = server.run("run", tmp_path / "bad.py", "--json", check=False)
    assert done.returncode == 1
    body = json.loads(done.stdout)
    assert body["stdout"] == "before\n" and "ZeroDivisionError" in body["error"]
    (tmp_path / "exit.py").write_text("import sys; sys.exit(7)")
    assert server.run("run", tmp_path / "exit.py", check=False).returncode == 7
    missing = server.run("run", tmp_path / "none.py", check=False)
    assert missing.returncode == 1 and "none.py" in missing.stderr and missing.stdout == ""
    assert answer(server, "sandbox", "ls") == []


def test_run_from_standard_input_and_timeout(server: Server):
    done = server.run("run", "-", stdin=None, input="print('piped')")
    assert done.stdout == "piped\n"
    late = server.run("run", "-", "--timeout", "1", stdin=None, input="while True: pass", check=False)
    assert late.returncode != 0 and "timeout" in late.stderr
    assert answer(server, "sandbox", "ls") == []


def test_run_keep(server: Server):
    done = server.run("run", "-", "--keep", "--json", stdin=None, input="1")
    identity = json.loads(done.stdout)["sandbox_id"]
    assert [one["id"] for one in answer(server, "sandbox", "ls")] == [identity]
    server.run("sandbox", "kill", identity)


def test_sandbox_commands(server: Server):
    created = answer(server, "sandbox", "create", "--ttl", "60", "--metadata", "a=b", "--min-isolation", "gvisor")
    assert (created["isolation"], created["metadata"], created["ttl_seconds"]) == ("gvisor", {"a": "b"}, 60)
    identity = server.run("sandbox", "create").stdout.strip()
    assert {one["id"] for one in answer(server, "sandbox", "ls")} == {created["id"], identity}
    table = server.run("sandbox", "ls").stdout
    assert identity in table and "gvisor" in table and "\x1b" not in table

    line = server.run("sandbox", "exec", identity, "--", "echo out; echo err >&2; exit 3", check=False)
    assert (line.returncode, line.stdout, line.stderr) == (3, "out\n", "err\n")
    words = server.run("sandbox", "exec", identity, "--", "printf", "%s|", "a b", "$HOME", "it's")
    assert words.stdout == "a b|$HOME|it's|"
    assert answer(server, "sandbox", "exec", identity, "--", "true")["exit_code"] == 0
    late = server.run("sandbox", "exec", identity, "--timeout", "1", "--", "sleep 30", check=False)
    assert late.returncode != 0 and "timeout" in late.stderr

    assert answer(server, "sandbox", "kill", identity) == {"killed": [identity]}
    again = server.run("sandbox", "kill", identity, check=False)
    assert again.returncode == 1 and identity in again.stderr
    server.run("sandbox", "kill", "--all")
    wait_until(lambda: answer(server, "sandbox", "ls") == [], 5, "an empty list")


def test_isolation_is_refused(server: Server):
    refusal = server.run("sandbox", "create", "--min-isolation", "microvm", check=False)
    assert refusal.returncode == 1 and "isolation" in refusal.stderr and refusal.stdout == ""


def test_token_commands(server: Server):
    made = answer(server, "token", "create", "--label", "for a test")
    assert made["token"].startswith("pds_") and made["label"] == "for a test"
    assert server.api(made["token"]).get("/me").status_code == 200
    listed = {one["prefix"]: one for one in answer(server, "token", "ls")}
    assert "token" not in listed[made["prefix"]], "the secret is shown once"
    server.run("token", "revoke", made["prefix"])
    assert server.api(made["token"]).get("/me").status_code == 401
    assert made["prefix"] not in server.run("token", "ls").stdout
    assert server.run("token", "revoke", made["prefix"], check=False).returncode == 1


def test_template_list(server: Server):
    rows = {row["name"]: row for row in answer(server, "template", "ls", "--data-dir", server.data_dir)}
    assert rows["code-interpreter"]["ready"] is True
    assert rows["code-interpreter"]["aliases"] == ["ubuntu-24.04"]
    assert (rows["code-interpreter"]["cpu"], rows["code-interpreter"]["memory_mb"]) == (2, 2048)
    unknown = server.run("template", "build", "nope", "--data-dir", server.data_dir, check=False)
    assert unknown.returncode == 1 and "code-interpreter" in unknown.stderr


def test_doctor(server: Server):
    done = server.run("doctor", "--data-dir", server.data_dir, "--json", check=False)
    assert json.loads(done.stdout)
    text = server.run("doctor", "--data-dir", server.data_dir, check=False)
    assert text.returncode == done.returncode
    assert "gvisor" in text.stdout.lower() and "kvm" in text.stdout.lower()


@pytest.mark.parametrize("arguments", [["nope"], ["run"], ["sandbox", "exec", "x"], ["serve", "--listen", "x"]])
def test_wrong_usage(server: Server, arguments: list[str]):
    done = server.run(*arguments, check=False)
    assert (done.returncode == 2 and "Usage" in done.stderr + done.stdout) or "error" in done.stderr


def test_no_server(server: Server):
    done = server.run("sandbox", "ls", "--api", "http://127.0.0.1:9", check=False)
    assert done.returncode == 1 and "127.0.0.1:9" in done.stderr
