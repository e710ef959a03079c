"""Random lives of up to four sandboxes, their snapshots and their server, beside a model of what must be true."""

import copy
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from boxes import Box, delete_snapshots, listed, refused, snapshots
from cells import Context
from leftovers import assert_consistent, assert_nothing_left
from server import Server

STEPS = 40
MOST_SANDBOXES = 4
MOST_SNAPSHOTS = 3


@dataclass
class Content:
    """What was written and acknowledged."""

    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)


@dataclass
class Modelled:
    """A sandbox as it should be."""

    box: Box
    context: Context
    status: str = "running"
    content: Content = field(default_factory=Content)


class World:
    """The server and its model."""

    def __init__(self, server: Server, chance: random.Random):
        self.server, self.chance = server, chance
        self.sandboxes: dict[str, Modelled] = {}
        self.snapshots: dict[str, tuple[Context, Content]] = {}
        self.written = 0
        self.log: list[str] = []

    def step(self) -> None:
        steps: list[tuple[Callable[..., None], Modelled | str | None]] = [
            (self.restart, None),
            (self.kill_server, None),
        ]
        if len(self.sandboxes) < MOST_SANDBOXES:
            steps += [(self.create, None)] + [(self.restore, one) for one in self.snapshots]
        steps += [(self.delete_snapshot, one) for one in self.snapshots]
        for one in self.sandboxes.values():
            verbs = [self.write, self.read, self.pause, self.resume, self.hibernate, self.wake, self.delete]
            if len(self.snapshots) < MOST_SNAPSHOTS:
                verbs.append(self.snapshot)
            if len(self.sandboxes) < MOST_SANDBOXES:
                verbs.append(self.fork)
            steps += [(verb, one) for verb in verbs]
        # Each kind of step is as likely as the others, however many sandboxes it could be taken for.
        kinds = {step.__name__ for step, _ in steps}
        kind = self.chance.choice(sorted(kinds) + ["write"] * ("write" in kinds))
        action, target = self.chance.choice([one for one in steps if one[0].__name__ == kind])
        name = target.box.id[-4:] + f" ({target.status})" if isinstance(target, Modelled) else (target or "")[-4:]
        self.log.append(f"{kind} {name}")
        action(*[] if target is None else [target])
        self.check()

    def create(self) -> None:
        box = Box.create(self.server.api())
        self.sandboxes[box.id] = Modelled(box, box.context())

    def restore(self, snapshot: str) -> None:
        context, content = self.snapshots[snapshot]
        box = Box.create(self.server.api(), from_snapshot=snapshot)
        self.sandboxes[box.id] = Modelled(box, box.same(context), content=copy.deepcopy(content))

    def fork(self, one: Modelled) -> None:
        count = self.chance.randint(1, MOST_SANDBOXES - len(self.sandboxes))
        children = one.box.fork(count=count)
        assert len(children) == count
        for child in children:
            content = copy.deepcopy(one.content)
            self.sandboxes[child.id] = Modelled(child, child.same(one.context), content=content)
        self._woken(one)

    def snapshot(self, one: Modelled) -> None:
        self.snapshots[one.box.snapshot()["id"]] = (one.context, copy.deepcopy(one.content))
        self._woken(one)

    def write(self, one: Modelled) -> None:
        self.written += 1
        if one.status == "paused":
            refused(one.box.post("exec", {"cmd": "true"}), 409, code="sandbox.invalid_state")
            return
        assert one.context.run(f"v{self.written} = {self.written}", 60).quiet
        one.content.variables[f"v{self.written}"] = self.written
        path = f"/workspace/f{self.chance.randint(0, 9)}"
        one.box.write(path, str(self.written))
        one.content.files[path] = str(self.written)
        self._woken(one)

    def read(self, one: Modelled) -> None:
        if one.status == "paused":
            refused(one.context.api.run(one.box.id, one.context.id, "1"), 409, code="sandbox.invalid_state")
            return
        names = "".join(f"{name!r}: {name}, " for name in one.content.variables)
        cell = one.context.run(f"{{{names}}}", 60)
        assert cell.text == str(one.content.variables) and cell.context_state == "alive"
        found = one.box.exec("cd /workspace && for f in f?; do [ -e $f ] && echo /workspace/$f $(cat $f); done; true")
        assert dict(line.split() for line in found.splitlines()) == one.content.files
        self._woken(one)

    def pause(self, one: Modelled) -> None:
        one.box.do("pause")
        one.status = "paused"

    def resume(self, one: Modelled) -> None:
        one.box.do("resume")
        one.status = "running"

    def hibernate(self, one: Modelled) -> None:
        one.box.do("hibernate")
        one.status = "hibernated"

    def wake(self, one: Modelled) -> None:
        one.box.do("wake")
        one.status = "running"

    def delete(self, one: Modelled) -> None:
        one.box.kill()
        del self.sandboxes[one.box.id]

    def delete_snapshot(self, identity: str) -> None:
        answer = self.server.api().delete(f"/snapshots/{identity}")
        assert answer.json() == {"deleted": identity}
        del self.snapshots[identity]

    def restart(self) -> None:
        self.server.restart()

    def kill_server(self) -> None:
        self.server.restart(kill=True)

    def _woken(self, one: Modelled) -> None:
        one.status = "running" if one.status == "hibernated" else one.status

    def check(self) -> None:
        api = self.server.api()
        assert listed(api) == {one.box.id: one.status for one in self.sandboxes.values()}
        kept = {one["id"] for one in snapshots(api) if one["kind"] == "snapshot"}
        assert kept == set(self.snapshots)
        alive = [one for one in self.sandboxes.values() if one.status == "running"]
        if alive:
            self.read(self.chance.choice(alive))

    def end(self) -> None:
        """Everything written is there, then everything goes."""
        for one in list(self.sandboxes.values()):
            self.resume(one)
            self.read(one)
        assert_consistent(self.server)
        for one in list(self.sandboxes.values()):
            self.delete(one)
        for identity in list(self.snapshots):
            self.delete_snapshot(identity)
        # What forks were made from is kept for a while otherwise.
        delete_snapshots(self.server.api())
        assert_nothing_left(self.server)


@pytest.mark.parametrize("sequence", range(2))
def test_random_lives(make_server: Callable[..., Server], sequence: int):
    seed = int(os.environ.get("PANDASTACK_TEST_SEED", random.randrange(10**6)))
    print(f"PANDASTACK_TEST_SEED={seed}")
    world = World(make_server(), random.Random(f"{seed} {sequence}"))
    try:
        for _ in range(STEPS):
            world.step()
        world.end()
    finally:
        print("\n".join(world.log))
