# Owns one PostgreSQL cluster for as long as its standard input is open.
#
#   sh -c "$(cat supervise.sh)" supervise BIN TMP [PRIMARY]
#
# With the URL of a primary it is a standby of that, made by a base backup.
#
# It answers one line for each command: `ok`, or what went wrong. The first answer, unasked, is `ok` and the cluster's
# directory. The kernel closes its input when the process that asked for the cluster ends, in whatever way: then the
# server is stopped and the directory removed.

exec 2>&1
trap '' PIPE # the reader may be gone before the answer is written
trap 'exit 1' HUP INT TERM
trap clean_up EXIT

bin=$1
dir=
postgres=

clean_up() {
    trap '' HUP INT TERM
    if [ -n "$postgres" ]; then stop QUIT; fi
    if [ -n "$dir" ]; then rm -rf "$dir"; fi
}

# Starts the server. The children of one that was killed hold its memory until they notice, a moment later.
start() {
    launches=0
    until launch; do
        launches=$((launches + 1))
        if [ "$launches" -ge 500 ] || ! tail -n 2 "$dir/log" | grep -q 'pre-existing shared memory block'; then return 1; fi
        sleep 0.02
    done
}

# Succeeds when the server accepts connections, fails when it ends before that.
launch() {
    "$bin/postgres" -D "$dir/data" </dev/null >>"$dir/log" 2>&1 &
    postgres=$!
    ready="$postgres
ready"
    standby="$postgres
standby"
    tries=0
    while kill -0 "$postgres" 2>/dev/null && [ "$tries" -lt 6000 ]; do
        # Line 1 is the process and line 8 its state; a file left by a killed server names another process.
        state=$(sed -n -e 1p -e '8s/ *$//p' "$dir/data/postmaster.pid" 2>/dev/null)
        if [ "$state" = "$ready" ] || [ "$state" = "$standby" ]; then return 0; fi
        tries=$((tries + 1))
        sleep 0.01
    done
    stop QUIT
    return 1
}

stop() {
    kill -"$1" "$postgres" 2>/dev/null
    wait "$postgres"
    postgres=
}

dir=$(mktemp -d "$2/abide-pgtest.XXXXXX") || exit 1
exec 2>>"$dir/log"
if [ -n "$3" ]; then
    "$bin/pg_basebackup" -D "$dir/data" -d "$3" -X stream -c fast -R --no-sync >>"$dir/log" </dev/null
else
    "$bin/initdb" -D "$dir/data" -A trust -U abide --no-sync --encoding=UTF8 --locale=C >>"$dir/log" </dev/null
fi || { echo "initdb or pg_basebackup failed: $(tail -n 5 "$dir/log" | tr '\n' ' ')" && exit 1; }
echo "ok $dir"

while read -r command; do
    case $command-$postgres in
    start-) if start; then echo ok; else echo "the server did not start"; fi ;;
    start-*) echo "it is running already" ;;
    stop- | crash- | kill- | reload- | promote-) echo "it is not running" ;;
    stop-*) stop INT && echo ok ;;
    crash-*) stop QUIT && echo ok ;;
    kill-*) stop KILL; echo ok ;;
    reload-*) kill -HUP "$postgres" && echo ok ;;
    promote-*) if "$bin/pg_ctl" promote -w -D "$dir/data" >>"$dir/log" </dev/null; then echo ok; else echo "it was not promoted"; fi ;;
    *) echo "unknown command: $command" ;;
    esac
done
