"""What copies of one sandbox share: what user code seeded, and nothing else.

And each part of that needs what is done for it.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from boxes import Box, killed
from cells import Context
from server import Api, Server

COUNT = 16
#: Requests at once.
THREADS = 4
#: Seconds that a clock may be off beyond what the request itself took.
CLOCK_TOLERANCE = 0.5

#: Generators that nobody seeded, used once so that each has a state to be copied.
PYTHON = """
import json, os, random, secrets, socket, ssl, tempfile, time, uuid
import numpy as np, pandas as pd, polars as pl, pyarrow.compute as pc
own, state, rng, sequence = random.Random(), np.random.RandomState(), np.random.default_rng(), np.random.SeedSequence()
frame, series = pd.DataFrame({"a": range(10**5)}), pl.Series(range(10**5))
def draw():
    one = uuid.uuid1()
    return {
        "kernel": os.urandom(8).hex(), "secrets": secrets.token_hex(8), "SystemRandom": random.SystemRandom().random(),
        "uuid4": str(uuid.uuid4()), "random": random.random(), "Random": own.random(), "Random.gauss": own.gauss(0, 1),
        "tempfile": tempfile.mktemp(), "numpy.random": np.random.rand(), "RandomState": state.rand(),
        "default_rng": rng.random(), "a spawned generator": rng.spawn(1)[0].random(),
        "SeedSequence": int(sequence.spawn(1)[0].generate_state(2, np.uint64)[0]),
        "pandas": frame.sample(6)["a"].tolist(), "polars": series.sample(6).to_list(),
        "pyarrow": pc.random(1)[0].as_py(), "ssl": ssl.RAND_bytes(8).hex(),
        "uuid1": (one.node, one.clock_seq),
    }
def draw_normal():
    return {"numpy.random.randn": np.random.randn(), "RandomState.randn": state.randn()}
draw_normal(); drawn = draw()
"""
PYTHON_DRAW = "print(json.dumps(draw_normal() | draw()))"

SEEDED = """
import json, random, numpy as np, polars as pl
random.seed(7); np.random.seed(7); pl.set_random_seed(7)
own, state, rng = random.Random(7), np.random.RandomState(7), np.random.default_rng(7)
series = pl.Series(range(10**5))
def draw():
    return [
        random.random(), own.random(), np.random.rand(), state.randn(), rng.random(), rng.spawn(1)[0].random(),
        series.sample(6).to_list(),
    ]
drawn = draw()
"""
SEEDED_DRAW = "print(json.dumps(draw()))"

NODE = """
const { randomBytes, randomInt, randomUUID } = require('node:crypto'), kept = Math.random;
function draw() {
  return { 'Math.random': Math.random(), 'Math.random, kept': kept(), randomBytes: randomBytes(8).toString('hex'),
           randomInt: randomInt(2 ** 47), randomUUID: randomUUID(),
           getRandomValues: [...crypto.getRandomValues(new Uint8Array(8))] };
}
draw(); undefined
"""
NODE_DRAW = "console.log(JSON.stringify(draw()))"

THREAD = """
import random, threading, time
log = []
def work():
    while True:
        log.append(random.random())
        time.sleep(0.02)
threading.Thread(target=work, daemon=True).start()
"""

BASH = ": $RANDOM $SRANDOM"
BASH_DRAW = 'echo "{\\"RANDOM\\": [$RANDOM, $RANDOM, $RANDOM, $RANDOM], \\"SRANDOM\\": [$SRANDOM, $SRANDOM]}"'
BASH_SEEDED = "RANDOM=7"
BASH_SEEDED_DRAW = "echo [$RANDOM, $RANDOM]"

IDENTITY = 'hostname; cat /etc/hostname /etc/machine-id /proc/sys/kernel/random/boot_id; getent hosts "$(hostname)"'


def each(boxes: list[Box], ask: Callable[[Box], object]) -> list:
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(ask, boxes))


def drawn(box: Box, context: Context, draw: str) -> object:
    """What a cell draws in one of the copies."""
    cell = box.same(context).run(draw)
    assert cell.status == 200 and not cell.error and not cell.stderr, cell
    return json.loads(cell.stdout)


def columns(rows: list[dict]) -> dict[str, list[str]]:
    """What each generator gave, over all copies."""
    return {name: [json.dumps(row[name]) for row in rows] for name in rows[0]}


def shared(rows: list[dict]) -> list[str]:
    """Generators that gave the same in two copies."""
    return [name for name, values in columns(rows).items() if len(set(values)) < len(values)]


@dataclass
class Family:
    """A parent, its children, and contexts that all of them have."""

    parent: Box
    children: list[Box]
    contexts: dict[str, Context]
    monotonic: float
    """Of the parent, before the fork, in seconds."""

    @property
    def all(self) -> list[Box]:
        return [self.parent, *self.children]


@pytest.fixture(scope="module")
def family(server: Server, api: Api) -> Iterator[Family]:
    parent = Box.create(api)
    with killed(parent):
        made = {
            "python": ("python", PYTHON),
            "seeded": ("python", SEEDED),
            "thread": ("python", THREAD),
            "node": ("node", NODE),
            "bash": ("bash", BASH),
            "bash, seeded": ("bash", BASH_SEEDED),
        }
        contexts = {}
        for name, (language, code) in made.items():
            contexts[name] = parent.context(language=language)
            cell = contexts[name].run(code, timeout=60)
            assert cell.status == 200 and not cell.error, (name, cell)
        monotonic = float(contexts["python"].run("time.monotonic()").text)
        forks = server.client().sandboxes.get(parent.id).fork_tree(count=COUNT)
        children = [Box(api, {"id": fork.id}) for fork in forks]
        with killed(*children):
            assert len({box.id for box in children}) == COUNT
            yield Family(parent, children, contexts, monotonic)


def test_what_a_thread_draws_differs_before_any_cell_runs(family: Family):
    # Long enough for hundreds of numbers; a copy that was not reseeded would be found in what another has drawn.
    time.sleep(2)
    logs = [drawn(box, family.contexts["thread"], "print(log)") for box in family.children[:4]]
    for log in logs:
        others = {value for other in logs if other is not log for value in other}
        assert others.isdisjoint(log[-10:]) and not others.isdisjoint(log[:10])


@pytest.mark.parametrize(
    ("name", "draw"),
    [("python", PYTHON_DRAW), ("node", NODE_DRAW), ("bash", BASH_DRAW)],
    ids=["python", "node", "bash"],
)
def test_no_two_copies_draw_the_same(family: Family, name: str, draw: str):
    rows = each(family.all, lambda box: drawn(box, family.contexts[name], draw))
    assert shared(rows) == []


@pytest.mark.parametrize(
    ("name", "draw"), [("seeded", SEEDED_DRAW), ("bash, seeded", BASH_SEEDED_DRAW)], ids=["python", "bash"]
)
def test_what_was_seeded_goes_on_alike(family: Family, name: str, draw: str):
    rows = each(family.all, lambda box: drawn(box, family.contexts[name], draw))
    assert len({json.dumps(row) for row in rows}) == 1


def test_every_copy_has_its_own_names_and_ids(family: Family):
    answers = each(family.all, lambda box: box.exec(IDENTITY).splitlines())
    names, files, machines, boots, hosts = (list(column) for column in zip(*answers, strict=True))
    assert names == files and len(set(names)) == len(set(machines)) == len(set(boots)) == COUNT + 1
    for box, name, host in zip(family.all, names, hosts, strict=True):
        assert name.endswith(box.id[-12:])
        assert host.split()[0] == "127.0.1.1" and name in host.split()
        assert box.same(family.contexts["python"]).run("socket.gethostname()").text == repr(name)


def test_the_clocks_of_every_copy_are_right(family: Family):
    def off(box: Box) -> tuple[float, float]:
        sent = time.time()
        real, monotonic = drawn(box, family.contexts["python"], "print([time.time(), time.monotonic()])")
        return max(sent - real, real - time.time()), monotonic

    for skew, monotonic in each(family.children, off):
        assert skew < CLOCK_TOLERANCE and monotonic > family.monotonic


#: Hooks of Python's contexts, and what is shared without each.
PYTHON_HOOKS = {
    "random": {"random", "Random", "Random.gauss", "tempfile"},
    "numpy": {"numpy.random", "RandomState", "default_rng", "a spawned generator", "SeedSequence", "pandas"},
    "polars": {"polars"},
    "openssl": {"ssl"},
    "uuid": {"uuid1"},
}
NODE_HOOKS = {
    "math": {"Math.random", "Math.random, kept"},
    "crypto": {"randomBytes", "randomInt", "randomUUID", "getRandomValues"},
}
NODE_MODULE = "Object.values(require.cache).find((one) => one.filename.endsWith('node_random.cjs')).exports"


def test_each_hook_is_needed(api: Api):
    """Without it, copies share what it is for, and nothing else: so the tests above can fail."""
    parent = Box.create(api)
    with killed(parent):
        lacking = []
        for hook, expected in PYTHON_HOOKS.items():
            context = parent.context(language="python")
            off = f"\nimport pandastack_interpreter.reseed as reseed; del reseed.HOOKS[{hook!r}]"
            assert not context.run(PYTHON + off, timeout=60).error
            # Normal numbers come of the generators that are looked at anyway.
            lacking.append((hook, context, "print(json.dumps(draw()))", expected))
        for hook, expected in NODE_HOOKS.items():
            context = parent.context(language="node")
            assert not context.run(f"{NODE}\ndelete {NODE_MODULE}.HOOKS[{hook!r}]").error
            lacking.append((hook, context, NODE_DRAW, expected))
        context = parent.context(language="bash")
        assert not context.run(f"{BASH}; __ps_reseed() {{ :; }}").error
        lacking.append(("bash", context, BASH_DRAW, {"RANDOM"}))
        children = parent.fork("fork-tree", count=2)
        with killed(*children):
            for hook, context, draw, expected in lacking:
                rows = each(children, lambda box, context=context, draw=draw: drawn(box, context, draw))
                assert set(shared(rows)) == expected, hook


#: A capability that only the first process has, as a bit of the numbers in `/proc/self/status`.
SYS_ADMIN = 1 << 21
REACH = r"""
import ctypes, glob, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what):
    try:
        return what()
    except OSError as error:
        return -1
print(glob.glob("/proc/1/fd/*") + glob.glob("/proc/1/task/*"),
      libc.mount(b"none", b"/mnt", b"tmpfs", 0, None), libc.ptrace(16, 1, 0, 0), libc.sethostname(b"x", 1),
      attempt(lambda: os.open("/proc/1/mem", os.O_RDWR)), attempt(lambda: os.readlink("/proc/1/root")),
      libc.umount2(b"/proc/1/fd", 2))
"""


def test_nothing_inside_reaches_the_agent(family: Family):
    box = family.children[0]
    status = "/proc/self/status"
    texts = {
        "exec": box.exec(f"cat {status}"),
        "python": box.same(family.contexts["python"]).run(f"print(open({status!r}).read())").stdout,
        "node": box.same(family.contexts["node"])
        .run(f"console.log(require('fs').readFileSync({status!r}, 'utf8'))")
        .stdout,
        "bash": box.same(family.contexts["bash"]).run(f"cat {status}").stdout,
    }
    for name, text in texts.items():
        sets = {line[:6]: int(line[8:], 16) for line in text.splitlines() if line.startswith("Cap")}
        assert {"CapEff", "CapPrm", "CapBnd"} <= sets.keys() and not any(
            value & SYS_ADMIN for value in sets.values()
        ), name
    box.write("/tmp/reach.py", REACH)
    assert box.exec("python3 /tmp/reach.py") == "[] -1 -1 -1 -1 -1 -1\n"
    # What a careless search or a loop over descriptors would do to the link.
    box.exec("cat /proc/1/fd/* /proc/1/task/*/fd/* 2>/dev/null || true")
    box.exec("for f in /proc/1/fd/*; do echo garbage > $f; done 2>/dev/null || true")
    assert box.exec("echo still here") == "still here\n"
