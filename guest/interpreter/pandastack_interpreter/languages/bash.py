"""bash: one shell for the whole context.

A cell that ends its shell (``exit``, ``set -e``, an interrupt) loses neither variables, functions, shell options nor the directory: the
shell's EXIT trap hands them over, and its successor takes them on. Lost are its background jobs' numbers and open descriptors. What
``set`` switches on holds for the cell that does so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .driver import Cell, Language, Report, exit_error

#: What the shell is given at its start, with the descriptors' numbers filled in. No part of it that runs cells is a function, for
#: `declare` in a cell would make local variables there.
_DEFINITIONS = r"""
__ps_status=0 __ps_interrupted=0 __ps_exit_trap= __ps_request= __ps_code= __ps_length= __ps_cwd= __ps_once=
__ps_at_exit='__ps_status=$?; __ps_leave'
__ps_return() { return "$1"; }
__ps_reseed() { RANDOM=$SRANDOM; }
__ps_leave() {
  { builtin set +euxv; builtin trap '' INT; } 2>&-
  { builtin printf 'leaving %d builtin cd -- %q\n' "$__ps_interrupted" "${__ps_cwd:-$PWD}"
    shopt -p; umask -p; declare -p; declare -f; builtin printf '\0'; } >&{reports} 2>&-
  builtin trap - INT
  __ps_return "$__ps_status"
  builtin eval "$__ps_exit_trap"
}
trap() {
  builtin trap "$@" || return
  ((BASH_SUBSHELL)) && return 0
  [[ $1 == -- ]] && shift
  local action=$1 name
  case $action in -l* | -p*) return 0 ;; esac
  (($# == 1)) && set -- - "$action"
  for name in "${@:2}"; do
    case $name in 0 | EXIT | exit | SIGEXIT)
      __ps_exit_trap=${1#-}
      builtin trap "$__ps_at_exit" EXIT ;;
    esac
  done
  return 0
}
builtin trap '' INT
builtin printf 'ready\0' >&{reports}
"""
_READ = 'LC_ALL=C read -r -N 8 -u {requests} __ps_length && LC_ALL=C read -r -N "$__ps_length" -u {requests}'
#: All on its first line, so that the cell's own first line is line 1.
_LOOP = (
    f'builtin eval "$1"; shift; while {_READ} __ps_request && {_READ} __ps_code; do builtin eval "$__ps_request"; done; builtin trap - EXIT'
)
_BEGIN = "__ps_interrupted=0 __ps_cwd=; builtin trap '__ps_interrupted=1; builtin exit 130' INT; builtin trap \"$__ps_at_exit\" EXIT;"
#: In a loop of one round, so that a stray `break` ends the cell and not the shell.
_CELL = '__ps_return "$__ps_status"; for __ps_once in 1; do {variables} eval "$__ps_code" {stdin}; done;'
_END = "{ __ps_status=$?; builtin set +euxv +o pipefail; builtin trap '' INT; } 2>&-;"
_REPORT = "builtin printf 'end %d\\0' \"$__ps_status\" >&{reports}"
_RESEED = "__ps_reseed;"
#: A cell that seeds bash's generator, which is then the user's.
_SEEDS = re.compile(r"(?:^|[;&|({]|\b(?:do|then|else|export|declare|typeset|readonly))\s*RANDOM=\S", re.MULTILINE)
_RESTORE = 'builtin eval "$__ps_code" 2>&-; __ps_reseed'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Bash(Language):
    """The driver's knowledge of bash. There is no memory limit: it would be on the address space of every command."""

    names = ("bash", "sh", "shell", "console")
    _reports = 1
    _is_seeded = False

    def command(self, requests: int, reports: int) -> list[str]:
        """Starts a shell without anybody's start-up files."""
        self._reports = reports
        loop, definitions = _LOOP.replace("{requests}", str(requests)), _DEFINITIONS.replace("{reports}", str(reports))
        return ["bash", "--norc", "--noprofile", "-c", loop, "bash", definitions]

    def request(self, cell: Cell) -> bytes:
        """The lines around a cell, and the cell."""
        if "\0" in cell.code:
            raise ValueError("the code has a NUL character, which bash cannot take")
        variables = " ".join(f"{name}={_quoted(value)}" for name, value in cell.env.items() if _NAME.fullmatch(name))
        parts = [
            _RESEED if cell.reseed and not self._is_seeded else "",
            _BEGIN,
            f"__ps_cwd=$PWD; builtin cd -- {_quoted(cell.cwd)};" if cell.cwd else "",
            _CELL.format(variables=variables, stdin=f"<{_quoted(cell.stdin)}" if cell.stdin else ""),
            _END,
            'builtin cd -- "$__ps_cwd";' if cell.cwd else "",
            _REPORT.replace("{reports}", str(self._reports)),
        ]
        self._is_seeded = self._is_seeded or _SEEDS.search(cell.code) is not None
        return _framed(" ".join(part for part in parts if part).encode("utf-8", "replace"), cell.code.encode("utf-8", "replace"))

    def reports(self, data: bytes) -> Iterable[Report]:
        """``ready``, ``end STATUS`` or ``leaving INTERRUPTED STATE``."""
        kind, _, rest = data.partition(b" ")
        if kind == b"ready":
            yield {"op": "ready"}
        elif kind == b"end" and rest.isdigit():
            code = int(rest)
            yield {"op": "end", "exit_code": code, "error": exit_error(code)}
        elif kind == b"leaving":
            interrupted, _, state = rest.partition(b" ")
            yield {"op": "leaving", "interrupted": interrupted == b"1", "restore": _framed(_RESTORE.encode(), state)}


def _framed(request: bytes, code: bytes) -> bytes:
    # bash reads a pipe byte by byte unless it knows how many there are.
    return b"".join(b"%08d%b\n" % (len(part) + 1, part) for part in (request, code))


def _quoted(text: str) -> str:
    """One word on one line for bash."""
    escaped = text.replace("\0", "").replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"$'{escaped}'"
