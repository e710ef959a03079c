"""Runs cells in a plain IPython shell. Goes into a sandbox; a list of cells on stdin, a list of answers on stdout."""

import ast
import contextlib
import io
import json
import sys
import warnings

import matplotlib
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

matplotlib.use("agg")
import matplotlib.pyplot as plt


class Hook(DisplayHook):
    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict, md_dict=None) -> None:
        self.shell.main.append(format_dict.get("text/plain"))


class Publisher(DisplayPublisher):
    def publish(self, data, *_, transient=None, update=False, **__) -> None:
        shown, identity = self.shell.shown, (transient or {}).get("display_id")
        if update and any(identity == known for known, _ in shown):
            shown[:] = [(known, data["text/plain"] if known == identity else text) for known, text in shown]
        else:
            shown.append((identity, data["text/plain"]))


class Shell(InteractiveShell):
    main: list
    shown: list
    pictures = 0
    error: BaseException | None = None

    def showtraceback(self, *_, **__) -> None:
        """Also called for a broken form of a value and inside of %%capture."""
        self.error = self.error or sys.exc_info()[1]

    showsyntaxerror = show_usage_error = showindentationerror = showtraceback

    def take_pictures(self, *_, **__) -> None:
        figures = [plt.figure(number) for number in plt.get_fignums()]
        self.pictures += sum(bool(figure.axes) for figure in figures)
        plt.close("all")

    def refuse(self, code: str) -> SyntaxError | None:
        """What only the compiler finds. Plain IPython finds it after it has run what stands before."""
        name = f"<ipython-input-{self.execution_count}-0>"
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(self.transform_cell(code))
                compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            return error if error.filename == name else None
        return None

    def answer(self, code: str) -> dict:
        self.main, self.shown, self.pictures, self.error = [], [], 0, None
        streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in "oe"]
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            refused = self.refuse(code)
            result = self.run_cell(code if refused is None else "None", store_history=True)
        self.take_pictures()
        error = refused or self.error or result.error_before_exec or result.error_in_exec
        return {
            "stdout": streams[0].buffer.getvalue().decode(),
            "stderr": streams[1].buffer.getvalue().decode(),
            "results": self.main + [text for _, text in self.shown],
            "pictures": self.pictures,
            "error": [type(error).__name__, str(error)] if error is not None else None,
        }


config = Config()
config.HistoryManager.enabled = False
config.InteractiveShell.colors = "nocolor"
shell = Shell.instance(config=config, displayhook_class=Hook, display_pub_class=Publisher)
plt.show = lambda: shell.take_pictures()
answers = [shell.answer(code) for code in json.load(sys.stdin)]
json.dump(answers, sys.__stdout__)
