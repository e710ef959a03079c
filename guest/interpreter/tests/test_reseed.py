"""In a copy of a sandbox, what user code seeded goes on and everything else draws other numbers than its siblings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Context, Zygote

#: Made in the first cell, and what draws from it: not seeded by anybody.
UNSEEDED = {
    "random": ("import random", "random.random()"),
    "random, seeded and then not": ("import random\nrandom.seed(1); random.seed()", "random.random()"),
    "a function taken from random": ("from random import random, seed", "random()"),
    "Random": ("import random\nr = random.Random()", "r.random()"),
    "a gauss kept for later": ("import random\nr = random.Random(); r.gauss(0, 1)", "r.gauss(0, 1)"),
    "a subclass that cannot be hashed": (
        "import random\nclass R(random.Random):\n    def __eq__(self, other): return True\nr = R()", "r.random()",
    ),
    "numpy.random": ("import numpy as np", "np.random.rand()"),
    "numpy.random, seeded and then not": ("import numpy as np\nnp.random.seed(1); np.random.seed()", "np.random.rand()"),
    "RandomState": ("import numpy as np\nr = np.random.RandomState()", "r.rand()"),
    "default_rng": ("import numpy as np\nr = np.random.default_rng()", "r.random()"),
    "default_rng in an object": ("import numpy as np\nclass A: pass\na = A(); a.r = [np.random.default_rng()]", "a.r[0].random()"),
    "Generator of Philox": ("import numpy as np\nr = np.random.Generator(np.random.Philox())", "r.random()"),
    "a spawned generator": ("import numpy as np\nr = np.random.default_rng().spawn(1)[0]", "r.random()"),
    "a generator to be spawned": ("import numpy as np\nr = np.random.default_rng()", "r.spawn(1)[0].random()"),
    "SeedSequence": ("import numpy as np\ns = np.random.SeedSequence()", "np.random.default_rng(s.spawn(1)[0]).random()"),
    "numpy.random, a normal number kept": ("import numpy as np\nnp.random.randn()", "np.random.randn()"),
    "RandomState, a normal number kept": ("import numpy as np\nr = np.random.RandomState(); r.randn()", "r.randn()"),
    "uuid1": ("import uuid; uuid.uuid1()", "(uuid.uuid1().node, uuid.uuid1().clock_seq)"),
    "getnode": ("import uuid; uuid.getnode()", "uuid.getnode()"),
    "pyarrow": ("import pyarrow.compute as pc; pc.random(1)", "pc.random(1)[0].as_py()"),
    "tempfile": ("import tempfile", "tempfile.mktemp()"),
    "ssl": ("import ssl", "ssl.RAND_bytes(8)"),
    "uuid": ("import uuid", "uuid.uuid4()"),
    "secrets": ("import secrets", "secrets.token_hex(8)"),
}  # fmt: skip

#: Seeded by user code. Not the generator of the module `random`, which Python itself seeds anew in every fork.
SEEDED = {
    "Random": ("import random\nr = random.Random(1)", "r.random()"),
    "Random, seeded later": ("import random\nr = random.Random(); r.seed('x')", "r.random()"),
    "a pickled Random": ("import random, pickle\nr = pickle.loads(pickle.dumps(random.Random(1)))", "r.random()"),
    "numpy.random": ("import numpy as np\nnp.random.seed(1)", "np.random.rand()"),
    "numpy.random.set_state": ("import numpy as np\nnp.random.set_state(np.random.RandomState(3).get_state())", "np.random.rand()"),
    "numpy.random.set_bit_generator": ("import numpy as np\nnp.random.set_bit_generator(np.random.MT19937(1))", "np.random.rand()"),
    "RandomState": ("import numpy as np\nr = np.random.RandomState(1)", "r.rand()"),
    "default_rng": ("import numpy as np\nr = np.random.default_rng(1)", "r.random()"),
    "default_rng of a list": ("import numpy as np\nr = np.random.default_rng([1, 2])", "r.random()"),
    "a spawned generator": ("import numpy as np\nr = np.random.default_rng(1).spawn(1)[0]", "r.random()"),
}


@pytest.fixture(scope="module")
def bare_zygote() -> Iterator[Zygote]:
    running = Zygote()
    yield running
    running.close()


@pytest.fixture(params=["warm", "imported by the context"])
def copied(zygote: Zygote, bare_zygote: Zygote, request: pytest.FixtureRequest) -> Iterator[Context]:
    context = (zygote if request.param == "warm" else bare_zygote).fork()
    yield context
    context.close()


def in_children(context: Context, draw: str) -> list[str]:
    """What copies of the process draw, as copies of a sandbox would: three that were told to reseed, and one that was not."""
    context.run(
        "import os\ndef __copies(draw):\n    for told in (True, True, True, False):\n        read, write = os.pipe()\n"
        "        if os.fork() == 0:\n            if told: __import__('pandastack_interpreter.reseed').reseed.reseed()\n"
        "            os.write(write, repr(draw()).encode()); os._exit(0)\n"
        "        os.close(write); os.wait(); print(os.read(read, 999).decode()); os.close(read)"
    )
    return context.run(f"__copies(lambda: {draw})").stdout.splitlines()


@pytest.mark.parametrize(("make", "draw"), UNSEEDED.values(), ids=UNSEEDED)
def test_what_nobody_seeded_differs(copied: Context, make: str, draw: str) -> None:
    copied.run(make)
    drawn = in_children(copied, draw)
    assert len(drawn) == 4 and len(set(drawn)) == 4


@pytest.mark.parametrize(("make", "draw"), SEEDED.values(), ids=SEEDED)
def test_what_was_seeded_goes_on(copied: Context, make: str, draw: str) -> None:
    copied.run(f"{make}\n{draw}")
    drawn = in_children(copied, draw)
    assert len(drawn) == 4 and len(set(drawn)) == 1


@pytest.mark.parametrize("seed", ["random.seed(1)", "random.setstate(random.Random(1).getstate())", "from random import seed; seed(1)"])
def test_the_agent_asks_for_it_with_a_cell(ctx: Context, seed: str) -> None:
    ctx.run("import random\nstate = random.getstate()")
    assert ctx.run("random.getstate() == state", reseed=True).text == "False"
    ctx.run(f"{seed}; state = random.getstate()")
    assert ctx.run("random.getstate() == state", reseed=True).text == "True"


def test_the_agent_asks_for_it_between_cells(ctx: Context) -> None:
    ctx.run("import random\nstate = random.getstate()")
    ctx.channel.send({"op": "reseed"})
    assert ctx.run("random.getstate() == state").text == "False"


def test_seeded_sequences_are_pythons_own(ctx: Context) -> None:
    assert (
        ctx.run("import random\nrandom.seed(1)\nrandom.random(), random.Random(1).random()").text
        == "(0.13436424411240122, 0.13436424411240122)"
    )
    assert ctx.run("import numpy as np\nnp.random.seed(1)\nfloat(np.random.rand()), float(np.random.RandomState(1).rand())").text == (
        "(0.417022004702574, 0.417022004702574)"
    )
    assert ctx.run("float(np.random.default_rng(1).random())").text == "0.5118216247002567"


def test_generators_are_as_they_were(ctx: Context) -> None:
    code = """
import copy, inspect, pickle, random, numpy as np
class Own(random.Random):
    def __init__(self, x=None): super().__init__(x)
    def random(self): return 0.5
print([
    isinstance(random._inst, random.Random), isinstance(np.random.mtrand._rand, np.random.RandomState),
    copy.deepcopy(Own(1)).random(), str(inspect.signature(random.Random.seed)), random.Random.seed.__doc__[:10],
    pickle.loads(pickle.dumps(np.random.seed)) is np.random.seed, pickle.loads(pickle.dumps(np.random.default_rng(1))).random() < 1,
    random.Random(5).random() == copy.copy(random.Random(5)).random(), np.random.SeedSequence(7).entropy, np.random.seed.__name__,
    random.SystemRandom().random() < 1, vars(random.Random(1)),
])
"""
    assert ctx.run(code).stdout == (
        "[True, True, 0.5, '(self, a=None, version=2)', 'Initialize', True, True, True, 7, 'seed', True, {'gauss_next': None}]\n"
    )


def test_a_generator_that_is_gone_is_forgotten(ctx: Context) -> None:
    ctx.run("import random, gc\nfrom pandastack_interpreter import reseed\nbefore = len(reseed._unseeded)")
    assert ctx.run("for _ in range(1000): random.Random()\ngc.collect(); len(reseed._unseeded) - before").text == "0"


def test_nothing_waits_for_an_import_any_more_once_it_is_done(ctx: Context) -> None:
    code = "import sys, numpy\n'numpy.random' in [getattr(finder, 'name', '') for finder in sys.meta_path]"
    assert ctx.run(code).text == "False"


def test_polars_draws_anew_unless_it_was_seeded(ctx: Context) -> None:
    # Not in forks: polars has threads.
    ctx.run("import polars as pl\nfrom polars import set_random_seed\nfrom pandastack_interpreter.reseed import HOOKS, _polars")
    ctx.run("s = pl.Series(range(1000)); draw = lambda: s.sample(4).to_list()\n_polars._seed(1); first = draw(); _polars._seed(1)")
    assert ctx.run("draw() == first").text == "True"
    assert ctx.run("_polars._seed(1); HOOKS['polars'](); draw() == first").text == "False"
    assert ctx.run("set_random_seed(1); HOOKS['polars'](); draw() == first").text == "True"


def test_a_uuid_of_a_copy_is_as_good_as_any(ctx: Context) -> None:
    ctx.run("import uuid, time", reseed=True)
    assert ctx.run("a, b = uuid.uuid1(), uuid.uuid1(); a != b, a.version, a.variant == uuid.RFC_4122, a.node == uuid.getnode()").text == (
        "(True, 1, True, True)"
    )
    assert ctx.run("abs((a.time - 0x01b21dd213814000) / 1e7 - time.time()) < 60").text == "True"


#: What a hook is for, and what draws from it in a copy of the process.
NEEDED = {
    "numpy": ("import numpy as np\nr = np.random.default_rng()", "r.random()"),
    "uuid": ("import uuid; uuid.uuid1()", "uuid.uuid1().node"),
}


@pytest.mark.parametrize("hook", NEEDED)
def test_each_hook_is_needed(ctx: Context, hook: str) -> None:
    make, draw = NEEDED[hook]
    ctx.run(f"{make}\nfrom pandastack_interpreter.reseed import HOOKS\nHOOKS.pop({hook!r})")
    assert len(set(in_children(ctx, draw))) == 1


def test_a_hook_that_fails_is_told_and_stops_no_other(ctx: Context) -> None:
    ctx.run("import random\nfrom pandastack_interpreter.reseed import HOOKS\nHOOKS['uuid'] = HOOKS['openssl'] = lambda: 1 / 0")
    ctx.run("HOOKS.update(random=HOOKS.pop('random')); state = random.getstate()")
    run = ctx.run("random.getstate() == state", reseed=True)
    assert run.text == "False"
    assert run.stderr.count("may draw what those of another sandbox draw: ZeroDivisionError") == 2
