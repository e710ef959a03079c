#!/usr/bin/env bash
# Runs the interpreter's tests with the very Python and packages of the baked template: in its root file system, under a layer in
# memory that takes all writes, in namespaces that end with the tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

data_dir=${PANDASTACK_TEST_DATA:-.build/data}
manifest=$(ls -td "$data_dir"/templates/code-interpreter/*/manifest.json 2>/dev/null | head -n 1)
[ -n "$manifest" ] || { echo "build the template first: make template" >&2; exit 1; }
hash=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rootfs_hash"])' "$manifest")
rootfs=$(realpath "$data_dir/rootfs/$hash/root")
# Pure Python, so what the host's pip installs runs on the template's version too.
pytest=.build/guest-pytest
if [ ! -e "$pytest/.done" ]; then
  python3 -m pip install -q --disable-pip-version-check --target "$pytest" "$(grep -x 'pytest==.*' tests/requirements.txt)"
  touch "$pytest/.done"
fi
export rootfs interpreter=$PWD/guest/interpreter pytest=$PWD/$pytest
unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  mount -t tmpfs -o size=2g layer /mnt
  mkdir /mnt/upper /mnt/work /mnt/root
  mount -t overlay -o "lowerdir=$rootfs,upperdir=/mnt/upper,workdir=/mnt/work" overlay /mnt/root
  mkdir -p /mnt/root/interpreter /mnt/root/pytest
  mount --bind "$interpreter" /mnt/root/interpreter
  mount -o remount,bind,ro /mnt/root/interpreter
  mount --bind "$pytest" /mnt/root/pytest
  mount -t proc proc /mnt/root/proc
  mount --rbind /dev /mnt/root/dev
  exec chroot /mnt/root env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/pytest python3 -m pytest -q -p no:cacheprovider /interpreter/tests "$@"
' bash "$@"
