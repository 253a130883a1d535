#!/usr/bin/env bash
# Compiles abide-sqlx and its example with releases of sqlx. The lock file of the crate has the oldest.
#
#   crates/sqlx/compiles.sh RELEASE...
#
# It needs the registry, or its index and crates in cargo's cache.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/../../target/drivers}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# The releases of sqlx in a lock file.
releases() { # NAME
    sed -n '/^name = "sqlx"$/{n;s/^version = "\(.*\)"$/\1/p}' "$work/$1/Cargo.lock"
}

for release in "$@"; do
    begun=$SECONDS
    mkdir -p "$work/$release/src"
    cp "$here/examples/place_order.rs" "$work/$release/src/main.rs"
    cat >"$work/$release/Cargo.toml" <<TOML
[package]
name = "compiles"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
abide-sqlx = { path = "$here" }
sqlx = { version = "$release", default-features = false, features = ["runtime-tokio", "postgres", "sqlite"] }
tokio = { version = "1.48", default-features = false, features = ["rt", "macros"] }
serde_json = "1"
TOML
    # Cargo gives abide-sqlx the newest release; the program's own is asked for as the readme says.
    cargo generate-lockfile --quiet --manifest-path "$work/$release/Cargo.toml"
    for other in $(releases "$release"); do
        case "$other" in
            "$release"*) ;;
            *) cargo update --quiet --manifest-path "$work/$release/Cargo.toml" "sqlx@$other" --precise "$release" ;;
        esac
    done
    cargo check --quiet --manifest-path "$work/$release/Cargo.toml"
    found="$(releases "$release" | paste -sd' ')"
    case "$found" in
        *" "*) echo "abide-sqlx and the program have two releases of sqlx: $found" >&2 && exit 1 ;;
        "$release"*) echo "abide-sqlx compiles with sqlx $found ($((SECONDS - begun)) s)" ;;
        *) echo "abide-sqlx was compiled with sqlx $found, and $release was expected" >&2 && exit 1 ;;
    esac
done
