#!/usr/bin/env bash
# abide with its default features resolves and compiles beside the drivers that bring a SQLite of their own, of which a program can
# link one; and abide-sqlite compiles with the oldest rusqlite that it accepts, with one in the middle, and with the one that sqlx 0.9
# brings. The newest is the workspace's own.
#
#   crates/sqlite/tests/beside.sh [TARGET-DIR]
#
# It needs the registry, or its index and crates in cargo's cache.
set -euo pipefail

repo="$(cd "$(dirname "$0")/../../.." && pwd)"
target="${1:-$repo/target/drivers}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# A crate that has the default features of abide, and a driver.
crate() { # NAME DEPENDENCY
    mkdir -p "$work/$1/src"
    echo 'fn main() {}' >"$work/$1/src/main.rs"
    cat >"$work/$1/Cargo.toml" <<TOML
[package]
name = "beside"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
abide = { path = "$repo/crates/abide" }
$2
TOML
}

# What `links = "sqlite3"` has left of the range: one rusqlite, of the given release.
resolves() { # NAME RELEASE DEPENDENCY
    crate "$1" "$3"
    if ! cargo generate-lockfile --quiet --manifest-path "$work/$1/Cargo.toml" >"$work/log" 2>&1; then
        echo "abide does not resolve beside $1:" >&2
        cat "$work/log" >&2
        exit 1
    fi
    local found
    found="$(sed -n '/^name = "rusqlite"$/{n;s/^version = "\(.*\)"$/\1/p}' "$work/$1/Cargo.lock" | paste -sd' ')"
    case "$found" in
        $2) echo "beside $1: rusqlite $found" ;;
        *) echo "beside $1: rusqlite $found, and $2 was expected" >&2 && exit 1 ;;
    esac
}

resolves sqlx-0.8 '0.32.*' 'sqlx = { version = "0.8", default-features = false, features = ["sqlite", "runtime-tokio"] }'
resolves sqlx-0.9 '0.39.*' 'sqlx = { version = "0.9", default-features = false, features = ["sqlite", "runtime-tokio"] }'
resolves sea-orm-1 '0.32.*' 'sea-orm = { version = "1", default-features = false, features = ["sqlx-sqlite", "runtime-tokio"] }'
resolves diesel-2.3 '0.*' 'diesel = { version = "2.3", default-features = false, features = ["sqlite"] }'
for release in 0.32 0.35 0.37 0.40 0.41; do
    resolves "rusqlite-$release" "$release.*" "rusqlite = \"$release\""
done

# Their hooks and checkpoints differ. All share one target directory, so that only rusqlite and
# what stands on it is compiled for each.
compiles() { # RELEASE
    local name="compiles-$1" begun=$SECONDS
    crate "$name" "rusqlite = \"$1\""
    sed -i "s|^abide = .*|abide-sqlite = { path = \"$repo/crates/sqlite\" }|" "$work/$name/Cargo.toml"
    CARGO_TARGET_DIR="$target" cargo check --quiet --manifest-path "$work/$name/Cargo.toml"
    echo "abide-sqlite compiles with rusqlite $1 ($((SECONDS - begun)) s)"
}

for release in 0.32 0.37 0.39; do
    compiles "$release"
done

# A program that uses both. What the resolution above has chosen is compiled, and what the crates share is compiled once.
# SeaORM is left out: it is built on sqlx 0.8, and takes longer than all of these.
compiles_beside() { # NAME USE
    local begun=$SECONDS
    cat >"$work/$1/src/main.rs" <<RUST
#[allow(unused_imports)]
use {abide::Abide, $2};
fn main() {}
RUST
    CARGO_TARGET_DIR="$target" cargo check --quiet --manifest-path "$work/$1/Cargo.toml"
    echo "abide compiles beside $1 ($((SECONDS - begun)) s)"
}

compiles_beside sqlx-0.8 sqlx::SqlitePool
compiles_beside sqlx-0.9 sqlx::SqlitePool
compiles_beside diesel-2.3 diesel::SqliteConnection
echo "beside: $SECONDS s in all"
