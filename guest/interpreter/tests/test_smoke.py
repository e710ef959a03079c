from harness import Context


def test_the_value_of_the_last_expression(ctx: Context) -> None:
    run = ctx.run("print('a')\nprint('b')\n1 + 2")
    assert (run.stdout, run.text, run.end["status"]) == ("a\nb\n", "3", "ok")


def test_a_figure_is_shown_once(ctx: Context) -> None:
    run = ctx.run("import matplotlib.pyplot as plt; plt.plot([1, 2, 3]); plt.show()")
    assert len(run.pngs) == 1 and [sorted(r) for r in run.results] == [["image/png"]]


def test_o05(ctx: Context) -> None:
    ctx.run("import matplotlib.pyplot as plt")
    run = ctx.run("def mk():\n    f, a = plt.subplots(); a.plot([1,2]); return f\nmk()")
    assert len(run.pngs) == 1
    assert len(ctx.run("g = mk()").pngs) == 1


def test_errors(ctx: Context) -> None:
    run = ctx.run("a = 1\n1/0")
    assert run.error and run.error["name"] == "ZeroDivisionError" and "line 2" in run.error["traceback"]
    assert run.stderr == "" and run.end["exit_code"] == 1


def test_interrupt(ctx: Context) -> None:
    ctx.run("keep = 41")
    run = ctx.run("print('x', flush=True)\nwhile True: pass", interrupt_after=0.5)
    assert run.stdout == "x\n" and run.error and run.error["name"] == "KeyboardInterrupt"
    assert ctx.run("keep").text == "41"
