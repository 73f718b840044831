# Runs one mongod, and ends it and removes its directory when the other end of stdin is closed.
# Arguments: directory, key of the replica set or nothing, then mongod with its own arguments.
directory=$1 key=$2 mongod= reader=
shift 2
exec 3<&0 </dev/null 2>&1

# When the end is reported, the reader of stdout may be gone: that must not stop the clean-up.
trap : PIPE

clean() {
    # Unquoted: the variables are empty once the processes have ended, so that no other process with the same pid is
    # hit.
    [ -z "$mongod$reader" ] || kill -9 $mongod $reader
    wait
    rm -rf -- "$directory"
    exit
}

umask 077
mkdir -- "$directory" "$directory/data" || exit 1
trap clean HUP INT TERM
if [ -n "$key" ]; then
    printf '%s' "$key" >"$directory/key"
fi

while :; do
    "$@" >>"$directory/console" 2>&1 3<&- &
    mongod=$!
    # A process that reads stdin, because `wait` cannot watch it at the same time.
    (while read -r line; do :; done; kill -9 "$mongod") <&3 >/dev/null 2>&1 &
    reader=$!
    echo "started $mongod"
    wait "$mongod"
    status=$?
    kill -9 "$reader"
    wait "$reader"
    mongod= reader=
    echo "exited $status"
    # Any line means: start mongod again.
    read -r line <&3 || break
done
clean
