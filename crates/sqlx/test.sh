#!/usr/bin/env bash
# Tests abide-sqlx, compiles it with the oldest and the newest sqlx that it accepts, and runs its example against a server over
# SQLite and one over PostgreSQL.
#
#   crates/sqlx/test.sh BINARY [TARGET-DIR]
#
# BINARY is `abide`; `abide-pgtest`, which starts a PostgreSQL, is expected beside it.
set -euo pipefail

bin="$(realpath "$1")"
here="$(cd "$(dirname "$0")" && pwd)"
target="${2:-$here/../../target/drivers}"
export CARGO_TARGET_DIR="$target"
cd "$here"
cargo fmt --check
bash compiles.sh 0.8.6 0.9
cargo clippy --quiet --locked --all-targets -- -D warnings
cargo test --quiet --locked --lib
cargo build --quiet --locked --examples
example="$target/debug/examples/place_order"

work="$(mktemp -d)"
ended=()
finish() {
    for pid in "${ended[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT

# Waits until a command succeeds.
until_it() {
    for _ in $(seq 1 300); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "waited in vain for: $*" >&2
    cat "$work"/*.log >&2
    exit 1
}

# Places an order over a store, and finds it in abide.
over() { # NAME STORE
    local port
    port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
    HOME="$work" "$bin" serve --store "$2" --listen "127.0.0.1:$port" >"$work/$1.log" 2>&1 &
    ended+=($!)
    until_it curl -fsS "http://127.0.0.1:$port/readyz"
    "$example" "$2"
    until_it curl -fsS "http://127.0.0.1:$port/v1/instances/order:42"
    until_it sh -c "curl -fsS http://127.0.0.1:$port/v1/instances/order:42/signals | grep -q paid"
    until_it sh -c "curl -fsS http://127.0.0.1:$port/v1/events | grep -q placed"
    if curl -fsS "http://127.0.0.1:$port/v1/instances/order:0" >/dev/null 2>&1; then
        echo "what was rolled back on $1 was carried out" >&2
        exit 1
    fi
    echo "abide-sqlx on $1: placed, and carried out"
}

over sqlite "sqlite:$work/shop.db"
mkfifo "$work/hold"
"$(dirname "$bin")/abide-pgtest" <"$work/hold" >"$work/pg" &
ended+=($!)
exec 3>"$work/hold"
until_it test -s "$work/pg"
over postgres "$(head -n 1 "$work/pg")"
exec 3>&-
