#!/usr/bin/env bash
# Makes .venv/ with the locked dependencies. Needs Python 3.11 or newer and a way to PyPI, nothing else.
# WITH_SPARK=1 adds PySpark, half a gigabyte.
set -euo pipefail
cd "$(dirname "$0")/../.."

UV_VERSION=0.13.8
VENV=.venv

say() { printf '  %s\n' "$*" >&2; }
die() { printf 'hongyan: %s\n' "$*" >&2; exit 1; }

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    die "no Python 3.11 or newer was found; install one, or name it with PYTHON=/path/to/python3."
}

# Debian ships venv's heart, ensurepip, in a package of its own.
need_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    command -v apt-get >/dev/null || die "$1 has no venv module; install it and run this again."
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    say "installing python3-venv"
    "${root[@]}" apt-get update -qq >&2
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
        || die "python3-venv could not be installed; install it by hand and run this again."
}

python=$(find_python)
usable() { new_enough $VENV/bin/python && $VENV/bin/python -m pip --version >/dev/null 2>&1; }

if ! usable; then
    need_venv_module "$python"
    say "making $VENV with $("$python" --version)"
    "$python" -m venv --clear $VENV
fi

if [ "$($VENV/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != $UV_VERSION ]; then
    say "installing uv $UV_VERSION"
    $VENV/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" \
        || die "uv could not be installed from PyPI; check the network and run this again."
fi

say "installing the locked dependencies"
export UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=$VENV UV_NO_PROGRESS=1
# Compiled, so that no process compiles what it imports: also not where Python must not write bytecode.
$VENV/bin/uv sync --quiet --frozen --compile-bytecode --python $VENV/bin/python \
    --extra worker --extra receipts --extra recovery --extra console --extra producer --extra lookback --extra mysql --extra simulator --extra otel --group dev --group foreign \
    ${WITH_SPARK:+--extra spark} \
    || die "the locked dependencies could not be installed; the lines above say why."
say "fetching the console's scripts"
$VENV/bin/python -m admin.vendor_files || die "the console's scripts could not be fetched; the line above says why."
if [ -n "${WITH_SPARK:-}" ]; then touch $VENV/.synced-spark; else touch $VENV/.synced; fi
