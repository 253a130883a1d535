#!/usr/bin/env bash
# Checks the Python SDK against a server's binary: types, style, and all tests.
#
#   sdk/python/test.sh [BINARY] [pytest arguments…]
#
# BINARY is `abide`, by default ABIDE_BIN, else target/debug/abide. A PostgreSQL for some of the tests is started by
# `abide-pgtest`, expected beside it, unless ABIDE_TEST_PG is the url of a database that may be written to.
set -euo pipefail

sdk="$(cd "$(dirname "$0")" && pwd)"
repo="$(cd "$sdk/../.." && pwd)"
home="$repo/target/python"
venv="$home/venv"

bin="${ABIDE_BIN:-$repo/target/debug/abide}"
if [ $# -gt 0 ] && [ -x "$1" ] && [ ! -d "$1" ]; then
    bin="$1"
    shift
fi
if [ ! -x "$bin" ]; then
    echo "$bin is not there: cargo build -p abide-server -p abide-pgtest, or name the binary" >&2
    exit 2
fi

# Made again when what is to be installed has changed.
stamp="$home/installed"
wanted="$(python3 --version) $(cksum <"$sdk/pyproject.toml")"
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    rm -f "$stamp"
    mkdir -p "$home"
    python3 -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$sdk[test]"
    echo "$wanted" >"$stamp"
fi

cd "$sdk"
export PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR="$home/mypy" RUFF_CACHE_DIR="$home/ruff"
"$venv/bin/ruff" format --check --quiet .
"$venv/bin/ruff" check --quiet .
"$venv/bin/mypy"
ABIDE_BIN="$bin" "$venv/bin/python" -m pytest -o cache_dir="$home/pytest" "$@"
