"""Snapshots, forks and hibernation from the command line."""

import json

from server import Server


def answer(server: Server, *arguments: object):
    return json.loads(server.run("--json", *arguments).stdout)


def test_states_from_the_command_line(server: Server):
    sandbox = server.run("sandbox", "create", "--persistent").stdout.strip()
    for command, status in [
        ("hibernate", "hibernated"),
        ("wake", "running"),
        ("pause", "paused"),
        ("resume", "running"),
    ]:
        assert status in server.run("sandbox", command, sandbox).stdout
        assert answer(server, "sandbox", "get", sandbox)["status"] == status
    listed = server.run("sandbox", "ls").stdout.splitlines()
    assert all(column in listed[0] for column in ("MEMORY", "DISK", "REASON"))
    kinds = [event["type"] for event in answer(server, "sandbox", "events", sandbox)]
    assert kinds[-4:] == ["sandbox.hibernated", "sandbox.woken", "sandbox.paused", "sandbox.resumed"]
    assert len(answer(server, "sandbox", "events", sandbox, "--tail", "1")) == 1
    server.run("sandbox", "kill", sandbox)


def test_forks_from_the_command_line(server: Server):
    parent = server.run("sandbox", "create").stdout.strip()
    server.run("sandbox", "exec", parent, "--", "echo kept > /tmp/file")
    children = server.run("sandbox", "fork", parent, "--count", "2").stdout.split()
    assert [server.run("sandbox", "exec", child, "--", "cat /tmp/file").stdout for child in children] == ["kept\n"] * 2
    first, second = server.run("sandbox", "fork", parent, "--tree").stdout.split()
    promoted = answer(server, "sandbox", "promote", second, "--cleanup-siblings")
    assert promoted["deleted"] == [first] and promoted["winner"] == second
    server.run("sandbox", "kill", parent, second, *children)


def test_snapshots_from_the_command_line(server: Server):
    source = server.run("sandbox", "create").stdout.strip()
    server.run("sandbox", "exec", source, "--", "echo kept > /tmp/file")
    snapshot = server.run("snapshot", "create", source, "--name", "one", "--metadata", "a=b").stdout.strip()
    assert answer(server, "snapshot", "get", snapshot)["metadata"] == {"a": "b"}
    assert [one["id"] for one in answer(server, "snapshot", "ls", "--sandbox", source)] == [snapshot]
    copy = server.run("sandbox", "create", "--from-snapshot", snapshot).stdout.strip()
    assert server.run("sandbox", "exec", copy, "--", "cat /tmp/file").stdout == "kept\n"
    both = server.run("sandbox", "create", "--from-snapshot", snapshot, "--template", "base", check=False)
    assert both.returncode == 2, "one of the two is meant"
    assert answer(server, "snapshot", "gc", "--dry-run")["dry_run"] is True
    server.run("snapshot", "rm", snapshot)
    assert server.run("snapshot", "rm", snapshot, check=False).returncode == 1
    server.run("sandbox", "kill", source, copy)


def test_doctor_fork_finds_nothing_shared(server: Server):
    before = answer(server, "sandbox", "ls")
    verdict = answer(server, "doctor", "fork", "--count", "2")
    assert verdict["ok"] is True
    assert answer(server, "sandbox", "ls") == before
