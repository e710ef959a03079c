#!/usr/bin/env bash
# From a bare Debian 12 machine to an agent that draws a chart in a sandbox. Can be run again at any time.
set -euo pipefail
cd "$(dirname "$0")/.."

# Sandboxes, packages and the data directory need root.
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "run this as root, or install sudo" >&2; exit 1; }
  exec sudo --preserve-env=ANTHROPIC_API_KEY,OPENAI_API_KEY,PANDASTACK_DATA_DIR,PATH "$0" "$@"
fi
if [ -n "${SUDO_USER:-}" ]; then
  # The toolchain is in the caller's home, and what is built here stays the caller's.
  caller_home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
  export PATH="$PATH:$caller_home/.cargo/bin"
  export CARGO_HOME="${CARGO_HOME:-$caller_home/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$caller_home/.rustup}"
  trap 'chown -R "$SUDO_UID:$SUDO_GID" .build target "$CARGO_HOME" 2>/dev/null || true' EXIT
fi

data_dir=${PANDASTACK_DATA_DIR:-/var/lib/pandastack}
pandastack=${CARGO_TARGET_DIR:-target}/release/pandastack
log=$data_dir/serve.log
out=.build/demo

step() { printf '\n[%3d s] %s\n' "$SECONDS" "$1"; }
answers() { python3 - "$1" <<'PY'
import sys, urllib.request
try:
    sys.exit(urllib.request.urlopen(sys.argv[1] + "/healthz", timeout=2).status != 200)
except OSError:
    sys.exit(1)
PY
}
# The URL of the server that runs over our data directory; empty if there is none.
server_url() {
  local url
  url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$data_dir/server.json" 2>/dev/null || true)
  if [ -n "$url" ] && answers "$url"; then echo "$url"; fi
}

step "Installing what is missing from Debian's packages"
make --no-print-directory deps
step "Building the program and its agent (minutes the first time)"
make --no-print-directory build
step "Preparing the recipe's Python environment"
make --no-print-directory recipes-venv
if [ -n "${ANTHROPIC_API_KEY:-}" ]; then provider=anthropic; elif [ -n "${OPENAI_API_KEY:-}" ]; then provider=openai; fi
if [ -n "${provider:-}" ]; then
  .build/venv/bin/pip install -q --disable-pip-version-check -r recipes/requirements.txt "pydantic-ai-slim[$provider]"
fi
step "Baking the template code-interpreter (minutes the first time)"
"$pandastack" template build code-interpreter --data-dir "$data_dir"

step "Starting the server"
url=$(server_url)
if [ -n "$url" ]; then
  echo "one answers already"
else
  listen=127.0.0.1:8080
  # Another program may have that port.
  if (: <"/dev/tcp/${listen/://}") 2>/dev/null; then listen=127.0.0.1:0; fi
  rm -f "$data_dir/server.json"
  nohup "$pandastack" serve --data-dir "$data_dir" --listen "$listen" >>"$log" 2>&1 </dev/null &
  echo $! >"$data_dir/serve.pid"
  for _ in $(seq 300); do
    url=$(server_url)
    [ -z "$url" ] || break
    kill -0 "$(cat "$data_dir/serve.pid")" 2>/dev/null || { tail -n 20 "$log" >&2; exit 1; }
    sleep 0.1
  done
  [ -n "$url" ] || { echo "the server does not answer, see $log" >&2; exit 1; }
fi
echo "listening on $url, log in $log"

# The configuration file may name another server, the hosted one for instance: then this run gets a token of its own.
config=$HOME/.config/pandastack/config.json
unset PANDASTACK_API PANDASTACK_API_KEY
if ! grep -qs "\"api_url\": *\"$url\"" "$config"; then
  PANDASTACK_API_KEY=$("$pandastack" token create --workspace default --label demo --expires-in-days 1 --data-dir "$data_dir")
  export PANDASTACK_API=$url PANDASTACK_API_KEY
fi

step "Asking the agent (recipes/pydantic_ai_agent.py)"
if [ -n "${provider:-}" ]; then echo "with a real model of $provider"; else echo "with a scripted model; set ANTHROPIC_API_KEY or OPENAI_API_KEY for a real one"; fi
echo
mkdir -p "$out"
(cd "$out" && ../venv/bin/python ../../recipes/pydantic_ai_agent.py)

step "Done"
cat <<END
server:  $url (token in $config)
stop it: make stop
next:    $pandastack run FILE.py, or recipes/llamaindex_agent.py
END
