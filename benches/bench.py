"""Latencies and density of PandaStack beside native yardsticks: a table for people, JSON for machines.

Samples of a number and of its yardstick are taken in turns, so that both see the same machine. Needs root, a built
program and a baked template: `make bench` sees to all of it.
"""

import argparse
import base64
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from copies import bench_copies
from leftovers import machine_ids, traces
from measures import Api, Quantity, Row, in_turns, server_over, timed
from server import Server, wait_until
from statistics_of import Summary
from yardsticks import CHART, BareRunsc, native_kernel, native_script, template_image

POOL_SIZE = 2


def pool_is_full(server: Server, claimed: int = 0) -> None:
    """Waits until the pool is filled and its machines are frozen, so that its work does not disturb a sample."""
    wait_until(lambda: len(machine_ids(server.data_dir)) == POOL_SIZE + claimed, 60, "a full pool")
    time.sleep(0.5)


def bench_cells(api: Api, count: int) -> list[Row]:
    sandbox = api.create()["id"]
    context = api.context(sandbox)
    ours = lambda: api.run(sandbox, context, "1")
    with native_kernel() as native:
        for _ in range(10):
            ours(), native("1")
        values, yardsticks = in_turns(count, ours, lambda: native("1"))
    rows = [
        Row("trivial cell over HTTP", Summary.of(values), "native ipykernel", Summary.of(yardsticks), most_ratio=0.3)
    ]
    rows.append(bench_exec(api, sandbox, context, max(20, count // 5)))
    rows.append(bench_quiescent(api, sandbox, context, max(10, count // 10)))
    api.kill(sandbox)
    return rows


def bench_exec(api: Api, sandbox: str, context: str, count: int) -> Row:
    inside = "import subprocess, time\n_t = time.perf_counter(); subprocess.run(['true']); time.perf_counter() - _t"

    def subprocess_inside() -> float:
        return float(api.run(sandbox, context, inside)["results"][0]["text/plain"])

    command = lambda: api.call("POST", f"/sandboxes/{sandbox}/exec", {"cmd": "true"})
    command(), subprocess_inside()
    values, yardsticks = in_turns(count, command, subprocess_inside)
    return Row("exec true", Summary.of(values), "subprocess true inside", Summary.of(yardsticks), most_ratio=3)


def bench_quiescent(api: Api, sandbox: str, context: str, count: int) -> Row:
    """How much longer the first cell after a second of rest takes than the one right after it."""
    extra = []
    for _ in range(count):
        time.sleep(1)
        first = timed(lambda: api.run(sandbox, context, "1"))
        second = timed(lambda: api.run(sandbox, context, "1"))
        extra.append(max(0.0, first - second))
    return Row("next cell of a quiescent sandbox, more", Summary.of(extra), most_ms=10)


def bench_histogram(api: Api, count: int) -> Row:
    """A cell that draws 10,000 samples, with its picture, beside the same cell in a kernel with the inline backend."""
    sandbox = api.create()["id"]
    context = api.context(sandbox)
    prepare = "import matplotlib.pyplot as plt, numpy as np\nsamples = np.random.default_rng(7).normal(size=10_000)"
    code = "plt.hist(samples, bins=50)\nplt.show()"
    with native_kernel() as native:
        native("%matplotlib inline"), native(prepare), native(code)
        api.run(sandbox, context, prepare), api.run(sandbox, context, code)
        values, yardsticks = in_turns(count, lambda: api.run(sandbox, context, code), lambda: native(code))
    api.kill(sandbox)
    return Row("histogram cell", Summary.of(values), "native ipykernel", Summary.of(yardsticks), most_ratio=2.5)


def bench_contexts(api: Api, count: int) -> list[Row]:
    """A new context when the last one is a while ago, and one right after another."""
    sandbox = api.create()["id"]
    rested, hurried = [], []
    for _ in range(count):
        time.sleep(2)
        contexts = []
        for samples in (rested, hurried):
            started = time.perf_counter()
            contexts.append(api.context(sandbox))
            samples.append(time.perf_counter() - started)
        for context in contexts:
            api.close_context(sandbox, context)
    api.kill(sandbox)
    return [
        Row("new context", Summary.of(rested), most_ms=150),
        Row("new context right after another", Summary.of(hurried)),
    ]


def bench_plotly(api: Api, count: int) -> list[Row]:
    sandbox = api.create()["id"]
    context = api.context(sandbox)

    def draw() -> None:
        code = "import plotly.express as px\npx.line(x=[1, 2, 3], y=[1, 3, 2])"
        assert "image/png" in api.run(sandbox, context, code, timeout_ms=60_000)["results"][0]

    first = timed(draw)
    later = [timed(draw) for _ in range(count)]
    api.kill(sandbox)
    return [
        Row("first plotly picture", Summary.of([first])),
        Row("later plotly picture", Summary.of(later), most_ms=800),
    ]


def bench_stream(api: Api, count: int) -> Quantity:
    """20 MB of text through the event stream, in lines of 100 characters."""
    sandbox = api.create()["id"]
    context = api.context(sandbox)
    code = "import sys\nline = 'x' * 99 + '\\n'\nfor _ in range(200): sys.stdout.write(line * 1000)"
    fields = {"max_output_bytes": 32 << 20, "timeout_ms": 60_000}
    api.stream(sandbox, context, code, **fields)
    seconds = [timed(lambda: api.stream(sandbox, context, code, **fields)) for _ in range(count)]
    api.kill(sandbox)
    return Quantity("20 MB of stdout through the stream", round(20 / statistics.median(seconds), 1), "MB/s", least=50)


def bench_create_warm(server: Server, api: Api, count: int) -> Row:
    samples = []
    while len(samples) < count:
        pool_is_full(server)
        started = time.perf_counter()
        sandbox = api.create()
        took = time.perf_counter() - started
        assert sandbox["boot_mode"] == "warm", f"the pool was empty: {sandbox['boot_mode']}"
        samples.append(took)
        api.kill(sandbox["id"])
    return Row("create from the pool", Summary.of(samples), most_ms=25)


def bench_chart(server: Server, api: Api, count: int) -> Row:
    def chart() -> float:
        pool_is_full(server)
        started = time.perf_counter()
        sandbox = api.create()["id"]
        results = api.run(sandbox, api.context(sandbox), CHART)["results"]
        png = next(result["image/png"] for result in results if "image/png" in result)
        assert base64.b64decode(png).startswith(b"\x89PNG")
        took = time.perf_counter() - started
        api.kill(sandbox)
        return took

    with tempfile.TemporaryDirectory() as directory:
        native_script(Path(directory))
        values, yardsticks = in_turns(count, chart, lambda: native_script(Path(directory)))
    return Row(
        "create to the first chart",
        Summary.of(values),
        "native python3 script.py",
        Summary.of(yardsticks),
        most_ratio=0.4,
    )


def bench_create_cold(server: Server, data_dir: Path, count: int) -> Row:
    api = Api(server)
    sandbox = api.create()["id"]
    (machine,) = machine_ids(server.data_dir)
    bare = BareRunsc(server.data_dir / "engine/vms" / machine)
    image = template_image(data_dir)
    api.kill(sandbox)

    def create() -> float:
        started = time.perf_counter()
        sandbox = api.create()["id"]
        took = time.perf_counter() - started
        api.kill(sandbox)
        return took

    def bare_create() -> float:
        machine, took = bare.restore(image)
        bare.delete(machine)
        return took

    try:
        create(), bare_create()
        values, yardsticks = in_turns(count, create, bare_create)
    finally:
        bare.close()
    return Row(
        "create from an empty pool", Summary.of(values), "bare runsc restore", Summary.of(yardsticks), most_ratio=1.25
    )


def bench_density(server: Server, sandboxes: int, seconds: float) -> list[Quantity]:
    api = Api(server)
    empty = _memory([server.process.pid])
    ids = [api.create()["id"] for _ in range(sandboxes)]
    for sandbox in ids:
        api.run(sandbox, api.context(sandbox), "import numpy as np\nx = np.arange(1000)\nx.sum()")
    machines = machine_ids(server.data_dir)
    # The interpreter processes that are prepared for the next contexts.
    time.sleep(6)
    processes = [int(line.split()[0]) for line in traces(server.data_dir, machines, server.process.pid).processes]
    before, at = _cpu_seconds([*processes, server.process.pid]), time.monotonic()
    time.sleep(seconds)
    used, elapsed = _cpu_seconds([*processes, server.process.pid]) - before, time.monotonic() - at
    disk = [_disk_bytes(server.data_dir / "engine/vms" / machine) for machine in machines]
    quantities = [
        Quantity(
            f"CPU of {sandboxes} idle sandboxes and the server", round(100 * used / elapsed, 2), "% of a core", most=2
        ),
        Quantity("memory of the server, no sandbox", round(empty / 1e6, 1), "MB resident"),
        Quantity(
            f"memory of the server, {sandboxes} sandboxes", round(_memory([server.process.pid]) / 1e6, 1), "MB resident"
        ),
        Quantity(
            "memory per idle sandbox", round(_memory(processes) / sandboxes / 1e6, 1), "MB, its share of shared pages"
        ),
        Quantity("disk per sandbox", round(statistics.mean(disk) / 1e3, 1), "kB"),
    ]
    for sandbox in ids:
        api.kill(sandbox)
    return quantities


def _cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory(pids: list[int]) -> int:
    """Proportional set size in bytes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += 1024 * int(line.split()[1])
    return total


def _disk_bytes(directory: Path) -> int:
    """Blocks of the file system that `directory` is on; what is mounted below is in memory."""
    device = directory.stat().st_dev
    total = 0
    for parent, children, files in os.walk(directory):
        children[:] = [name for name in children if os.lstat(f"{parent}/{name}").st_dev == device]
        total += sum(os.lstat(f"{parent}/{name}").st_blocks * 512 for name in [*children, *files])
    return total


def machine() -> dict:
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    runsc = subprocess.run(["runsc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "runsc": runsc.split()[-1],
    }


def show(report: dict, rows: list[Row], quantities: list[Quantity]) -> None:
    verdict = {True: "met", False: "MISSED", None: ""}
    print("\n" + ", ".join(f"{key} {value}" for key, value in report["machine"].items()) + "\n")
    print(f"{'milliseconds':<42}{'n':>5}{'p50':>10}{'p95':>10}{'p99':>10}{'ratio':>8}{'more':>9}  goal")
    for row in rows:
        for name, summary in ((row.name, row.value), (f"  {row.yardstick_name}", row.yardstick)):
            if summary is None:
                continue
            ours = summary is row.value
            ratio = f"{row.ratio:.2f}" if ours and row.ratio is not None else ""
            more = f"{row.more:.1f}" if ours and row.more is not None else ""
            goal = f"{row.goal}: {verdict[row.met]}" if ours and row.goal else ""
            numbers = "".join(f"{number:>10.2f}" for number in (summary.p50, summary.p95, summary.p99))
            print(f"{name:<42}{summary.n:>5}{numbers}{ratio:>8}{more:>9}  {goal}")
    print()
    for quantity in quantities:
        goal = f"{quantity.goal}: {verdict[quantity.met]}" if quantity.goal else ""
        print(f"{quantity.name:<50}{quantity.value:>10} {quantity.unit:<32}{goal}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data-dir", type=Path, required=True, help="where the template is baked")
    arguments.add_argument("--out", type=Path, help="where the JSON goes")
    arguments.add_argument("--quick", action="store_true", help="a tenth of the samples")
    options = arguments.parse_args()
    share = 0.1 if options.quick else 1.0
    count = lambda full: max(3, int(full * share))
    rows: list[Row] = []
    with server_over(options.data_dir.resolve(), POOL_SIZE) as server:
        api = Api(server)
        pool_is_full(server)
        rows += bench_cells(api, count(300))
        rows.append(bench_histogram(api, count(40)))
        rows += bench_contexts(api, count(20))
        rows += bench_plotly(api, count(20))
        quantities = [bench_stream(api, count(10))]
        rows.append(bench_create_warm(server, api, count(40)))
        rows.append(bench_chart(server, api, count(20)))
    with server_over(options.data_dir.resolve(), 0, "--fork-keep-seconds", "1") as server:
        rows.append(bench_create_cold(server, options.data_dir.resolve(), count(20)))
        rows += bench_copies(server, count(10))
        quantities += bench_density(server, 10, 3 if options.quick else 20)
    report = {
        "machine": machine(),
        "latencies": [row.as_json() for row in rows],
        "quantities": [quantity.as_json() for quantity in quantities],
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    show(report, rows, quantities)


if __name__ == "__main__":
    main()
