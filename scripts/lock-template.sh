#!/bin/sh
# Regenerates guest/templates/NAME/requirements.lock from requirements.in: every package, exact, with the hashes of its wheels
# for x86_64 and aarch64. Uses whatever index pip is configured for and names none.
#
#   scripts/lock-template.sh [NAME...]
#
# PYTHON: the command of a Python 3.13 with pip (markers are evaluated by the Python that runs pip), default python3.13.
# It may be several words, e.g. PYTHON="chroot /path/to/rootfs python3".
set -eu

cd "$(dirname "$0")/.."
python=${PYTHON:-python3.13}
target=3.13

found=$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$found" != "$target" ]; then
    echo "lock-template: $python is Python $found, but the templates have $target; set PYTHON" >&2
    exit 1
fi

[ $# -gt 0 ] || set -- $(for file in guest/templates/*/requirements.in; do basename "$(dirname "$file")"; done)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

resolve() { # machine constraints requirement...
    machine=$1
    shift
    platforms=""
    for glibc in 2_41 2_39 2_36 2_35 2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do
        platforms="$platforms --platform manylinux_${glibc}_$machine"
    done
    # shellcheck disable=SC2086 # the lists are words on purpose
    $python -m pip --disable-pip-version-check install --quiet --dry-run --ignore-installed --report - \
        --only-binary=:all: --implementation cp --python-version "$target" --abi cp313 --abi abi3 --abi none \
        --target /nonexistent $platforms --platform "manylinux2014_$machine" --platform "linux_$machine" --platform any "$@"
}

for name in "$@"; do
    dir=guest/templates/$name
    requirements=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$dir/requirements.in")
    echo "lock-template: $name for x86_64" >&2
    # shellcheck disable=SC2086
    resolve x86_64 $requirements >"$work/x86_64.json"
    pinned=$(python3 scripts/lock_template.py pins "$work/x86_64.json")
    echo "lock-template: $name for aarch64" >&2
    # shellcheck disable=SC2086
    resolve aarch64 $pinned >"$work/aarch64.json"
    python3 scripts/lock_template.py lock "$work/x86_64.json" "$work/aarch64.json" >"$work/lock"
    mv "$work/lock" "$dir/requirements.lock"
    echo "lock-template: wrote $dir/requirements.lock ($(grep -c == "$dir/requirements.lock") packages)" >&2
done
