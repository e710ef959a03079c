"""The compiler of cells: nothing of a cell runs that cannot be compiled as a whole."""

from __future__ import annotations

import ast
import warnings

from IPython.core.compilerop import CachingCompiler


class WholeCellCompiler(CachingCompiler):
    """Finds every error of a cell before its first statement runs.

    IPython compiles a cell statement by statement as it goes, so that errors which only the compiler finds, such as a ``break`` outside a
    loop, would come after the statements above had run.
    """

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> ast.AST:
        """The tree of a source. Raises ``SyntaxError`` also for what the parser lets pass."""
        tree = super().ast_parse(source, filename, symbol)
        with warnings.catch_warnings():
            # They come when the statements are compiled to be run.
            warnings.simplefilter("ignore")
            try:
                compile(tree, filename, symbol, self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            except SyntaxError:
                raise
            except Exception:  # noqa: S110
                # Such as a text with half a surrogate pair, which would be the docstring of this whole but is none of a cell.
                pass
        return tree
