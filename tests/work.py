"""A sandbox with something of everything in it, to be looked for in its copies."""

from boxes import Box

SERVE = "nohup python3 -m http.server 8000 --bind 127.0.0.1 --directory /workspace >/dev/null 2>&1 &"
FETCH = "curl -sS --retry 20 --retry-connrefused --retry-delay 1 localhost:8000/served"


class Work:
    """Something of everything in one sandbox."""

    def __init__(self, box: Box):
        self.box = box
        self.python, self.node, self.bash = (box.context(language=name) for name in ("python", "node", "bash"))
        box.write("/workspace/served", "from the background\n")
        box.write("/workspace/lines", "one\ntwo\nthree\n")
        box.exec(SERVE)
        assert box.exec(FETCH) == "from the background\n"
        self.python.run(
            "import numpy as np, os\nx = 41\nlarge = np.random.default_rng(7).integers(0, 2**40, 25_000_000)\n"
            "file = open('/workspace/lines'); first = file.readline()\n"
            "unsaved = open('/workspace/unsaved', 'w'); count = unsaved.write('kept in a buffer')"
        )
        self.sum = self.python.run("int(large.sum())").text
        self.pid = self.python.run("os.getpid()").text
        self.node.run("var n = 20; const list = [1, 2]; function twice(k) { return 2 * k }")
        self.bash.run('v=kept; cd /var; f() { echo "f $1"; }')

    def check(self, box: Box) -> None:
        """All of it is there and goes on; the contexts are where they were."""
        python, node, bash = (box.same(context) for context in (self.python, self.node, self.bash))
        assert python.run("x + 1").text == "42"
        assert python.run("int(large.sum())").text == self.sum
        assert python.run("os.getpid()").text == self.pid, "the same process"
        assert python.run("(first, file.tell())").text == "('one\\n', 4)"
        assert python.run("(file.read(), unsaved.tell())").text == "('two\\nthree\\n', 16)"
        assert python.run("unsaved.close(); open('/workspace/unsaved').read()").text == "'kept in a buffer'"
        assert node.run("twice(n) + list.length").text == "42"
        assert bash.run('f "$v"; pwd').stdout == "f kept\n/var\n"
        assert box.exec(FETCH) == "from the background\n"
