#!/usr/bin/env bash
# Sets up what the tests need and runs every one, cheapest first; stops at the first part that fails.
# Arguments go to the black-box tests, which come last.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
  echo "the tests run real sandboxes: run them as root (sudo make test)" >&2
  exit 1
fi
parts=()
part() {
  local name=$1 begun=$SECONDS
  shift
  printf '\n==== %s\n' "$name"
  if "$@"; then
    parts+=("ok      $((SECONDS - begun)) s  $name")
  else
    printf '\n'
    printf '%s\n' "${parts[@]}" "FAILED  $((SECONDS - begun)) s  $name"
    exit 1
  fi
}
quietly() { make --no-print-directory "$@"; }

# Building the tests of the crates replaces the static agent by one that only runs on this system, so they get a copy.
rust_tests() {
  install -m 755 "${CARGO_TARGET_DIR:-target}/release/pandastack-agent" .build/pandastack-agent
  local -x PANDASTACK_AGENT=$PWD/.build/pandastack-agent
  local -x PANDASTACK_TEST_PYTHON=$PWD/.build/venv/bin/python PANDASTACK_SIM_PYTHON=$PWD/.build/venv/bin/python
  if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --release --locked --workspace --no-fail-fast
  else
    cargo test --release --locked --workspace --no-fail-fast
  fi
}
black_box() { .build/venv/bin/python -m pytest -c tests/pytest.ini --rootdir tests tests "$@"; }

part "Debian packages" quietly deps
part "Python environment" quietly venv
part "format and lints" quietly lint
part "build" quietly build
part "template" quietly template
part "crate tests" rust_tests
part "build of the static agent, again" quietly build
part "interpreter tests" scripts/test-interpreter.sh
printf '\n'
printf '%s\n' "${parts[@]}"
printf '\n==== black-box tests\n'
black_box "$@"
