#!/usr/bin/env bash
# Ends the server over the data directory, and its sandboxes. No server is no error.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then exec sudo --preserve-env=PANDASTACK_DATA_DIR "$0" "$@"; fi

data_dir=${PANDASTACK_DATA_DIR:-/var/lib/pandastack}
pandastack=${CARGO_TARGET_DIR:-target}/release/pandastack
pid=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$data_dir/server.json" 2>/dev/null || true)
# Numbers of processes are used again: only a process of our name is ours.
if [ -z "$pid" ] || [ "$(cat "/proc/$pid/comm" 2>/dev/null || true)" != pandastack ]; then
  echo "no server runs over $data_dir"
  exit 0
fi
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$data_dir/server.json")
key=$("$pandastack" token create --workspace default --label stop --expires-in-days 1 --data-dir "$data_dir")
PANDASTACK_API=$url PANDASTACK_API_KEY=$key "$pandastack" sandbox kill --all
kill "$pid"
for _ in $(seq 300); do
  [ -e "/proc/$pid" ] || { rm -f "$data_dir/serve.pid"; echo "stopped"; exit 0; }
  sleep 0.1
done
echo "the server (process $pid) does not end, see $data_dir/serve.log" >&2
exit 1
