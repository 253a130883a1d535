#!/usr/bin/env bash
# Runs what is in this directory as far as one machine can, with the real binary: the settings files and variables are
# read, the commands of the manifests and of the unit are run, the health check is asked, Prometheus's token reads the
# metrics, systemd reads the unit, promtool tests the alerts, and a SQLite file that is in use is backed up and restored as
# docs/backup.md says.
# No image is built and no cluster is needed; crates/tidy checks the rest.
#
#   deploy/test.sh [path of the binary]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
binary=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/debug/abide}")
home=$(mktemp -d)
server=
# shellcheck disable=SC2317  # called by the trap
end() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$home"
}
trap end EXIT
export HOME="$home" PATH="$home/bin:$PATH"
mkdir "$home/bin"
ln -s "$binary" "$home/bin/abide"

say() { echo "deploy: $*" >&2; }
fail() {
    say "$*"
    [ ! -s "$home/log" ] || tail -5 "$home/log" >&2
    exit 1
}

say 'settings are read'
for file in systemd kubernetes; do
    abide config --config "$here/$file/abide.toml" >/dev/null || fail "$file/abide.toml is refused"
done
# Those of the image.
variables=$(sed -n 's/^ENV \(ABIDE_.*\)/\1/p' "$here/docker/Dockerfile")
# shellcheck disable=SC2086  # one word for each variable
env $variables abide config --json >"$home/config" || fail 'the variables of the Dockerfile are refused'
grep -q 'environment ABIDE_LISTEN' "$home/config" || fail 'the Dockerfile does not set where to listen'

say 'a server that others can reach does not start without a token'
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export ABIDE_LISTEN="0.0.0.0:$port" ABIDE_STORE="sqlite:$home/abide.db" ABIDE_NAME=abide-7f9c-x2x
"$here/docker/healthcheck" 2>/dev/null && fail 'the health check believes in a server that is not there'
if abide serve >/dev/null 2>"$home/refused"; then fail 'it started'; fi
grep -q 'token' "$home/refused" || fail 'it does not say that a token is missing'

say 'the first token is made with the arguments of the job'
arguments=$(sed -n '/args:/,/env:/s/^ *- \(.*\)/\1/p' "$here/kubernetes/first-token.yaml" | head -6)
# shellcheck disable=SC2086  # one word for each argument
operate=$(abide $arguments 2>/dev/null)
reading=$(abide token create --role read --name prometheus 2>/dev/null)

say 'the server starts with the arguments of the deployment and of the unit'
serve() { # the file says where to listen, and the variable is stronger
    : >"$home/said"
    abide serve --config "$here/kubernetes/abide.toml" >"$home/said" 2>"$home/log" &
    server=$!
    for _ in $(seq 100); do
        if grep -q listening "$home/said"; then return; fi
        kill -0 "$server" 2>/dev/null || fail 'it ended'
        sleep 0.1
    done
    fail 'it does not listen'
}
stop() {
    kill -TERM "$server"
    wait "$server" || fail "it ended with $? and not with 0"
    server=
}
serve
for path in $(sed -n 's/^ *path: //p' "$here/kubernetes/deployment.yaml" | sort -u); do
    curl --silent --fail --output /dev/null "http://127.0.0.1:$port$path" || fail "$path does not answer 200"
done
"$here/docker/healthcheck" || fail 'the health check does not see the server'

say 'the metrics are for the token of Prometheus'
status() { curl --silent --output "$home/metrics" --write-out '%{http_code}' "$@" "http://127.0.0.1:$port/metrics"; }
[ "$(status)" = 401 ] || fail 'the metrics are open to everyone'
[ "$(status -H "authorization: Bearer $reading")" = 200 ] || fail 'the token of the role read cannot read the metrics'
for metric in abide_workers abide_depths_age_seconds abide_stuck_total abide_committed_total; do
    grep -q "^$metric " "$home/metrics" || fail "$metric is not among the metrics"
done

say 'a SQLite file in use is backed up and restored'
export ABIDE_TOKEN="$operate"
url="http://127.0.0.1:$port"
post() { curl --silent --fail -H "authorization: Bearer $operate" -H 'content-type: application/json' -d "$2" "$url/v1/$1"; }
field() { python3 -c 'import json, sys; print(eval(sys.argv[1], {"it": json.load(sys.stdin)}))' "$1"; }
claim() { post workers/claim "{\"worker\": \"$1\", \"queue\": \"default\", \"machines\": [{\"name\": \"m\", \"version\": 1}]}" | field 'it["claims"][0]["claim"]'; }
commit() { post workers/commit "{\"worker\": \"$1\", \"outcomes\": [{\"claim\": \"$2\", \"outcome\": {\"done\": {\"result\": 1}}}]}" | field 'it["results"][0]["status"]'; }
post instances '{"machine": "m", "key": "order:0"}' >/dev/null
[ "$(commit early "$(claim early)")" = committed ] || fail 'a step cannot be committed'
post instances '{"machine": "m", "key": "order:1"}' >/dev/null
sqlite3 "$home/abide.db" "vacuum into '$home/copy.db'" || fail 'the backup failed'
[ "$(sqlite3 "$home/copy.db" 'pragma integrity_check')" = ok ] || fail 'the backup is broken'
# What comes after the backup: a claim, and an instance.
held=$(claim early)
later=$(post instances '{"machine": "m", "key": "order:2"}' | field 'it["id"]')
stop

mkdir "$home/old"
mv "$home"/abide.db* "$home/old"
cp "$home/copy.db" "$home/abide.db"
awk '/^```sql$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/docs/backup.md" >"$home/restored.sql"
[ -s "$home/restored.sql" ] || fail 'docs/backup.md has no SQL'
sqlite3 -bail "$home/abide.db" <"$home/restored.sql" || fail 'the restore failed'
abide doctor >/dev/null 2>&1 || fail 'the restored file is not sound'
serve
abide show order:1 --store "$url" >/dev/null || fail 'what was backed up is not there'
if abide show order:2 --store "$url" >/dev/null 2>&1; then fail 'what came after the backup is there'; fi
again=$(post instances '{"machine": "m", "key": "order:3"}' | field 'it["id"]')
[ "$again" -gt "$later" ] || fail "the id $again was given out before (up to $later)"
taken=$(claim early)
came=$(commit early "$held")
[ "$came" = stale ] || fail "a claim from before the restore is $came and not stale"
came=$(commit early "$taken")
[ "$came" = committed ] || fail "a claim from after the restore is $came and not committed"
stop

# There is no systemd on some systems; where there are packages of Debian, .ci/setup installs it.
if command -v systemd-analyze >/dev/null; then
    say 'systemd reads the unit'
    sed "s|^ExecStart=/usr/local/bin/abide|ExecStart=$home/bin/abide|" "$here/systemd/abide.service" >"$home/abide.service"
    systemd-analyze verify --man=no --recursive-errors=no "$home/abide.service" || fail 'systemd finds fault with the unit'
    systemd-analyze security --offline=true --threshold=20 "$home/abide.service" >/dev/null || fail 'the unit may do too much'
fi
# The same goes for promtool.
if command -v promtool >/dev/null; then
    say 'Prometheus reads its files, and the alerts fire when they should'
    checked() { promtool "$@" >"$home/log" 2>&1 || fail "promtool $1 $2 finds fault: $(cat "$home/log")"; }
    checked check config --syntax-only "$here/prometheus/prometheus.yml"
    checked check rules "$here/prometheus/abide.rules.yml"
    checked test rules "$here/prometheus/abide.tests.yml"
else
    say 'promtool is not installed: the alerts were not tested'
fi
say passed
