#!/usr/bin/env bash
# Runs schemathesis over /openapi.json of the real binary: no server error, no answer that its schema does not know.
#
#   crates/server/tests/schemathesis.sh [path of the binary] [more arguments of `schemathesis run`]
#
# It makes its own virtual environment when there is none, and its own server on a free port over a store of its own
# (STORE=postgres://… for another).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
binary=${1:-$target/debug/abide}
shift || true
version=4.32.5

venv=${SCHEMATHESIS_VENV:-$target/schemathesis-$version}
if [ ! -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "schemathesis==$version"
fi

home=$(mktemp -d)
log="$home/log"
: >"$home/said"
HOME="$home" "$binary" serve --listen 127.0.0.1:0 --store "${STORE:-sqlite:$home/abide.db}" >"$home/said" 2>"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT
for _ in $(seq 200); do
    url=$(grep -o 'http://[0-9.:]*' "$home/said" | head -1 || true)
    [ -n "$url" ] && break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.05
done

put() { curl --silent --show-error --fail -X "$1" "$url$2" -H 'content-type: application/json' -d "$3" >/dev/null; }
put PUT /v1/machines/m/1 '{"signals": [{"name": "go", "parameters": [{"name": "n", "type": "int"}]}], "updates": [{"name": "add"}]}'
put PUT /v1/graphs/go '{"steps": [{"name": "wait", "wait_for_event": {"event": "paid", "timeout_ms": 3600000, "match": {"left": "id", "op": "eq", "right": 7}}}]}'
put POST /v1/instances/batch '{"instances": [{"machine": "m", "key": "known"}, {"machine": "m", "key": "ended"}, {"graph": "go", "key": "parked"}, {"machine": "m", "key": "reserved", "reserve": true}]}'
put POST /v1/instances/known/signals/go '{"payload": 1}'
put POST /v1/instances/known/updates/add '{"wait_for": "accepted"}'
put POST /v1/instances/ended/cancel '{"reason": "as it must be"}'

cd "$home"
export PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1
"$venv/bin/schemathesis" --config-file "$here/schemathesis.toml" run "$url/openapi.json" \
    --phases examples,coverage,fuzzing --max-examples "${EXAMPLES:-25}" --seed "${SEED:-1}" \
    --generation-database none --request-timeout 20 --continue-on-failure --no-color "$@"
