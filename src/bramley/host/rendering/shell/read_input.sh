# shellcheck shell=sh
# read_input LENGTH: make standard input, the connection, file 3, and read LENGTH characters of base64 from it into $input; all at
# once, because head may read more than it prints. In a batch LENGTH is -, because $input is set.
read_input() {
    [ "$1" != - ] || return 0
    exec 3<&0 </dev/null
    input=
    [ "$1" -eq 0 ] || input=$(head -c "$1" <&3)
    [ "${#input}" -eq "$1" ] || fail "the connection was lost before all input had arrived"
}

# decode TEXT: print base64 decoded; printf is a builtin, so its arguments do not appear in the process table.
decode() {
    printf '%s' "$1" 2>/dev/null | base64 --decode
}

# kill_on_disconnect PID: kill a process when the connection ends.
kill_on_disconnect() {
    while IFS= read -r _; do :; done
    trap '' TERM
    kill_tree "$1"
}

# wait_connected PID SECONDS: wait for a process; kill it after SECONDS or when the connection, file 3, ends.
wait_connected() {
    (kill_on_disconnect "$1") <&3 >/dev/null 2>&1 &
    watcher=$!
    wait_with_timeout "$1" "$2"
    code=$?
    kill "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null
    return "$code"
}
