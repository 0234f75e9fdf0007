#!/bin/sh
# A Python on this machine -> .venv with mlxgpt in it, editable. `make` calls this; so may you.
#
#   scripts/setup.sh [EXTRAS [PACKAGE]]    EXTRAS are those of pyproject.toml, such as dev,peers;
#                                          PACKAGE comes too, without what it requires
#
# Variables: PYTHON, the interpreter to use (default: the newest suitable one on PATH);
#            UV, the uv to use where there is one (default: uv; empty: python -m venv and pip).
# Says little; all that uv or pip say goes to .venv/install.log.
set -eu
cd "$(dirname "$0")/.."

extra=${1:-}
alone=${2:-}
log=.venv/install.log
need="mlxgpt needs Python 3.11 or newer"
remedy="install one (macOS: brew install python@3.13; Debian, Ubuntu: apt install python3 python3-venv) \
or name one with PYTHON=/path/to/python"

fail() {
    echo "setup: $*" >&2
    exit 1
}

# Print the version of interpreter $1. Status 0: suitable, 1: too old, 2: built for Intel Macs,
# 3: no venv module, anything else: it does not run (a pyenv shim without a version, say).
examine() {
    "$1" -c '
import sys
print("%d.%d.%d" % tuple(sys.version_info[:3]))
if sys.version_info < (3, 11):
    sys.exit(1)
import platform
if sys.platform == "darwin" and platform.machine() != "arm64":
    sys.exit(2)
try:
    import venv, ensurepip
except ImportError:
    sys.exit(3)
' 2>/dev/null
}

# Set $python and $version to the first suitable of "$@", or say in one line why there is none.
choose() {
    python= reason= lacking=
    for candidate in "$@"; do
        status=0
        version=$(examine "$candidate") || status=$?
        case $status in
            0) python=$candidate ;;
            1) found="$candidate is $version" ;;
            2) found="$candidate is built for Intel processors, which MLX does not support" ;;
            3)
                found= lacking=${lacking:-$version}
                [ -z "$uv" ] || python=$candidate # uv needs no such module
                ;;
            *) found= ;;
        esac
        [ -z "$python" ] || return 0
        [ -z "$found" ] || reason=${reason:+$reason, }$found
    done
    [ -z "$lacking" ] || fail "Python $lacking lacks its venv module;" \
        "install it (Debian, Ubuntu: apt install python${lacking%.*}-venv) or install uv"
    fail "$need, but ${reason:-none of these runs: $*}; $remedy"
}

# Run "$@" with its output in the log, and a dot every two seconds to show that it lives.
quietly() {
    (while sleep 2; do printf .; done) &
    dots=$!
    trap 'kill $dots 2>/dev/null' EXIT
    trap 'exit 130' INT TERM
    status=0
    "$@" >>"$log" 2>&1 || status=$?
    kill $dots 2>/dev/null || true
    wait $dots 2>/dev/null || true
    trap - EXIT INT TERM
    return $status
}

# Say in one line why the installation failed, as far as the log tells.
explain() {
    echo
    if grep -qiE 'no space left' "$log"; then
        fail "the disk is full (details: $log)"
    elif grep -qiE 'connection (refused|reset|error)|connecterror|newconnectionerror|timed out|name resolution|name or service not known|nodename nor servname|network (is unreachable|was disabled)|dns error|error sending request|could not connect|failed to (connect|establish)|proxyerror|certificate|from versions: none' "$log"; then
        fail "the package registry cannot be reached; check network and proxy, then run this again (details: $log)"
    fi
    # The first error tells most: pip's later ones only say that something before them failed.
    words=$(grep -iE '(error|because)[: ]+[a-z]' "$log" | grep -v subprocess | head -n 1 |
        sed 's/^[^A-Za-z]*//' | cut -c 1-160)
    fail "the installation failed: ${words:-no reason given} (details: $log)"
}

uv=$(command -v "${UV-uv}" 2>/dev/null || true)
[ -n "${UV-uv}" ] || uv=

if [ -e .venv/pyvenv.cfg ]; then
    status=0
    examine .venv/bin/python >/dev/null || status=$?
    case $status in
        0 | 3) [ -z "${PYTHON:-}" ] || echo "setup: keeping .venv; remove it to change its Python" ;;
        *) rm -rf .venv ;; # its Python went away, or is too old
    esac
fi

if [ ! -e .venv/pyvenv.cfg ]; then
    if [ -n "${PYTHON:-}" ]; then
        choose "$PYTHON"
    else
        choose python3.13 python3.12 python3.11 python3
    fi
    mkdir -p .venv
    : >"$log"
    echo "setup: making .venv with $python ($version)${uv:+ and uv}"
    if [ -n "$uv" ]; then
        "$uv" venv --allow-existing --python "$python" .venv >>"$log" 2>&1 || explain
    else
        "$python" -m venv .venv >>"$log" 2>&1 || explain
    fi
fi

: >"$log"
printf 'setup: installing mlxgpt%s, log in %s ' "${extra:+ with [$extra]}" "$log"
start=$(date +%s)
target=".${extra:+[$extra]}"
if [ -n "$uv" ]; then
    quietly "$uv" pip install --python .venv/bin/python -c constraints.txt -e "$target" || explain
    [ -z "$alone" ] || quietly "$uv" pip install --python .venv/bin/python --no-deps "$alone" || explain
else
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then # made by a uv that is gone
        .venv/bin/python -m ensurepip >>"$log" 2>&1 || explain
    fi
    quietly .venv/bin/python -m pip install --disable-pip-version-check --no-input --retries 2 \
        -c constraints.txt -e "$target" || explain
    [ -z "$alone" ] || quietly .venv/bin/python -m pip install --disable-pip-version-check \
        --no-input --retries 2 --no-deps "$alone" || explain
fi
echo " done in $(($(date +%s) - start)) s"
