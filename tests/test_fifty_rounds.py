"""One context through fifty pauses, snapshots, hibernations, restores and forks, in any order."""

import os
import random
from collections.abc import Callable

from boxes import Box, delete_snapshots
from cells import Context
from leftovers import assert_consistent, assert_nothing_left
from server import Server

ROUNDS = 50
OPERATIONS = ("pause", "snapshot", "hibernate", "restore", "fork")
# Copies of an instant that are kept until the end.
KEPT = 4


class Journey:
    """A sandbox that changes its id now and then, and what was kept of it on the way."""

    def __init__(self, box: Box, chance: random.Random):
        self.box, self.chance = box, chance
        self.context = box.context()
        self.forks: dict[int, Box] = {}
        self.taken: dict[int, str] = {}

    def write(self, number: int) -> None:
        context = self.box.same(self.context)
        assert context.run(f"round_{number} = {number}", 60).quiet
        self.box.write(f"/workspace/round_{number}", str(number))

    def pause(self, _: int) -> None:
        self.box.do("pause")
        self.box.do("resume")

    def snapshot(self, number: int) -> None:
        identity = self.box.snapshot()["id"]
        if len(self.taken) < KEPT:
            self.taken[number] = identity
        else:
            assert self.box.api.delete(f"/snapshots/{identity}").status_code == 200

    def hibernate(self, _: int) -> None:
        self.box.do("hibernate")
        if self.chance.random() < 0.5:
            self.box.do("wake")

    def restore(self, _: int) -> None:
        taken = self.box.snapshot()["id"]
        self._go_on_in(Box.create(self.box.api, from_snapshot=taken))
        assert self.box.api.delete(f"/snapshots/{taken}").status_code == 200

    def fork(self, number: int) -> None:
        (child,) = self.box.fork()
        if len(self.forks) < KEPT:
            self.forks[number] = child
        elif self.chance.random() < 0.5:
            self._go_on_in(child)
        else:
            child.kill()

    def _go_on_in(self, box: Box) -> None:
        self.box.kill()
        self.box = box


def check(box: Box, context: Context, rounds: int) -> None:
    """It has what was written in the first `rounds` rounds, and nothing of later ones."""
    expected = sorted(f"round_{number}" for number in range(rounds))
    found = box.same(context).run("sorted(name for name in globals() if name.startswith('round_'))", 60)
    assert (found.text and eval(found.text), found.context_state) == (expected, "alive")
    total = " + ".join(expected)
    assert box.same(context).run(total).text == str(sum(range(rounds)))
    assert box.exec("cd /workspace && ls -d round_* | LC_ALL=C sort").split() == expected
    assert box.exec("cat /workspace/round_* | wc -c") == f"{sum(len(str(n)) for n in range(rounds))}\n"


def test_fifty_rounds(make_server: Callable[..., Server]):
    seed = int(os.environ.get("PANDASTACK_TEST_SEED", random.randrange(10**6)))
    print(f"PANDASTACK_TEST_SEED={seed}")
    chance = random.Random(seed)
    server = make_server()
    journey = Journey(Box.create(server.api()), chance)
    order = list(OPERATIONS) * (ROUNDS // len(OPERATIONS))
    chance.shuffle(order)
    for number, operation in enumerate(order):
        journey.write(number)
        getattr(journey, operation)(number)
    check(journey.box, journey.context, ROUNDS)
    for number, child in journey.forks.items():
        check(child, journey.context, number + 1)
    for number, identity in journey.taken.items():
        copy = Box.create(server.api(), from_snapshot=identity)
        check(copy, journey.context, number + 1)
        copy.kill()
    assert len(journey.forks) == len(journey.taken) == KEPT
    assert_consistent(server)
    for box in (journey.box, *journey.forks.values()):
        box.kill()
    delete_snapshots(server.api())
    assert_nothing_left(server)
