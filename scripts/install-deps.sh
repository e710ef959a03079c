#!/bin/sh
# Installs what building and running PandaStack needs on Debian 12 or 13, from the machine's own apt mirrors. Does nothing if all is
# there. Needs root, or sudo for the parts that are missing.
#
#   scripts/install-deps.sh           install what is missing
#   scripts/install-deps.sh --check   only report; exit status 1 if something is missing
set -eu

rust_needed=1.94
runsc_needed='0.0~20240729'
runsc_suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
runsc_sources=/etc/apt/sources.list.d/pandastack-runsc.sources
runsc_pin=/etc/apt/preferences.d/pandastack-runsc

say() { echo "install-deps: $*"; }
fail() {
    echo "install-deps: $*" >&2
    exit 1
}

check_only=no
case ${1-} in
    '') ;;
    --check) check_only=yes ;;
    *) fail "unknown argument $1 (only --check is known)" ;;
esac

[ "$(uname -s)" = Linux ] && command -v apt-get >/dev/null || fail "this is no Debian: install runsc, mmdebstrap, gcc, make, curl and Python 3 with venv by hand"

release=$(. /etc/os-release && echo "${ID-} ${VERSION_ID-}")
case $release in
    'debian 12') codename=bookworm ;;
    'debian 13') codename=trixie ;;
    *) fail "made for Debian 12 and 13, this is '$release': install runsc, mmdebstrap, gcc, make, curl and Python 3 with venv by hand" ;;
esac

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Programs may come from elsewhere than apt, so those are looked for by name.
missing=''
need_program() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null || missing="$missing $2"; }
need_package() { installed "$1" || missing="$missing $1"; }

need_program gcc gcc
need_program make make
need_program curl curl
need_program git git
need_program mmdebstrap mmdebstrap
need_program setpriv util-linux
need_program mount mount
need_package libc6-dev
need_package ca-certificates
need_package debian-archive-keyring
need_package python3
need_package python3-venv

# Debian 12's own runsc is too old; one that did not come from a package is the administrator's choice.
runsc_missing=no
if installed runsc; then
    version=$(dpkg-query -W -f '${Version}' runsc)
    dpkg --compare-versions "$version" ge "$runsc_needed" || runsc_missing="$version"
elif ! command -v runsc >/dev/null; then
    runsc_missing=yes
fi

rust_missing=no
cargo=$(command -v cargo || { [ -x "${HOME:-/root}/.cargo/bin/cargo" ] && echo "$HOME/.cargo/bin/cargo"; } || true)
if [ -z "$cargo" ]; then
    rust_missing='not found'
else
    version=$("$cargo" --version 2>/dev/null | cut -d ' ' -f 2)
    dpkg --compare-versions "${version:-0}" ge "$rust_needed" || rust_missing="${version:-without a toolchain}"
fi

[ -z "$missing" ] || say "missing packages:$missing"
[ "$runsc_missing" = no ] || say "missing: runsc $runsc_needed or later (found: $runsc_missing)" | sed 's/found: yes/found: none/'
[ "$rust_missing" = no ] || say "missing: Rust $rust_needed or later (found: $rust_missing)"

if [ -z "$missing" ] && [ "$runsc_missing" = no ] && [ "$rust_missing" = no ]; then
    say 'everything is there'
    exit 0
fi
[ $check_only = no ] || exit 1

if [ "$(id -u)" = 0 ]; then
    as_root=''
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    fail 'run this as root, or install sudo'
fi

# Prints "URI key" of the machine's Debian archive: the first entry that has this release's suite and component main, those signed by
# Debian's own keyring first, because vendors' repositories use the same suite names.
debian_archive() {
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -f "$file" ] || sed 's/#.*//' "$file" | awk -v suite="$codename" '
            $1 == "deb" {
                key = ""
                rest = $0
                sub(/^[ \t]*deb[ \t]+/, "", rest)
                if (rest ~ /^\[/) {
                    options = rest
                    sub(/\].*/, "", options)
                    if (match(options, /signed-by=[^] \t]+/)) key = substr(options, RSTART + 10, RLENGTH - 10)
                    sub(/^\[[^]]*\][ \t]*/, "", rest)
                }
                count = split(rest, word, /[ \t]+/)
                if (word[2] != suite || word[1] ~ /^cdrom:/) next
                for (i = 3; i <= count; i++) if (word[i] == "main") { print (key ~ /debian-archive/ ? 0 : key == "" ? 1 : 2), word[1], key; next }
            }'
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || [ "$file" = "$runsc_sources" ] || sed '/^#/d' "$file" | awk -v suite="$codename" '
            function has(list, wanted,    word, count, i) {
                count = split(list, word, /[ \t]+/)
                for (i = 1; i <= count; i++) if (word[i] == wanted) return 1
                return 0
            }
            function flush(    word, key) {
                if (has(field["types"], "deb") && has(field["suites"], suite) && has(field["components"], "main") && field["enabled"] !~ /no|false|off|without|disable/) {
                    split(field["uris"], word, /[ \t]+/)
                    split(field["signed-by"], signer, /[ \t]+/)
                    key = signer[1] ~ /^\// ? signer[1] : ""
                    print (key ~ /debian-archive/ ? 0 : field["signed-by"] == "" ? 1 : 2), word[1], key
                }
                for (name in field) delete field[name]
            }
            /^[ \t]*$/ { flush(); next }
            /^[ \t]/ { text = $0; sub(/^[ \t]+/, "", text); field[current] = field[current] (field[current] == "" ? "" : " ") text; next }
            { current = tolower($0); sub(/:.*/, "", current); text = $0; sub(/^[^:]*:[ \t]*/, "", text); field[current] = text }
            END { flush() }'
    done
}

# Writes a file only if it would change, so that a second run touches nothing.
put() { # file text
    [ -f "$1" ] && [ "$(cat "$1")" = "$2" ] && return
    say "writing $1"
    printf '%s\n' "$2" | $as_root tee "$1" >/dev/null
}

# runsc of the next release is one static binary without dependencies; everything else of that release stays out of reach.
add_runsc_source() {
    found=$(debian_archive | sort -s -k 1,1n | head -n 1)
    [ -n "$found" ] || fail "apt's configuration names no Debian archive for $codename; install runsc $runsc_needed or later by hand"
    uri=$(echo "$found" | cut -d ' ' -f 2)
    key=$(echo "$found" | cut -d ' ' -f 3)
    put "$runsc_sources" "# Only for runsc: see $runsc_pin.
Types: deb
URIs: $uri
Suites: $runsc_suite
Components: main
Signed-By: ${key:-$keyring}"
    put "$runsc_pin" "Package: *
Pin: release n=$runsc_suite
Pin-Priority: 50

Package: runsc
Pin: release n=$runsc_suite
Pin-Priority: 900"
}

apt_packages=$missing
if [ "$runsc_missing" != no ]; then
    [ $codename != bookworm ] || add_runsc_source
    apt_packages="$apt_packages runsc"
fi
if [ "$rust_missing" != no ] && [ $codename = trixie ] && ! command -v rustup >/dev/null; then
    apt_packages="$apt_packages rustup"
fi

if [ -n "$apt_packages" ]; then
    say 'apt-get update'
    $as_root apt-get -q update
    say "apt-get install$apt_packages"
    # shellcheck disable=SC2086 # a list of names
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install $apt_packages
fi

if [ "$rust_missing" != no ]; then
    if command -v rustup >/dev/null; then
        say 'rustup: stable toolchain'
        rustup toolchain install stable --profile minimal --component clippy --component rustfmt
        rustup default stable
    else
        fail "everything else is there, but Debian 12 has no recent Rust: install $rust_needed or later with rustup (https://rustup.rs), then run this again"
    fi
fi
say 'done'
