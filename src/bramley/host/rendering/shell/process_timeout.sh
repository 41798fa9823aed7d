# shellcheck shell=sh
# process_tree PID: list a process and all its descendants.
process_tree() {
    ps -A -o pid= -o ppid= | awk -v top="$1" '
        { parent[$1] = $2 }
        END {
            for (pid in parent) {
                one = pid
                while (one != top && one + 0 > 1 && one in parent) one = parent[one]
                if (one == top) print pid
            }
        }'
}

# kill_tree PID: terminate a process and all its descendants; those that remain are killed a second later.
kill_tree() {
    members=$(process_tree "$1")
    # shellcheck disable=SC2086
    kill -TERM $members
    sleep 1
    # shellcheck disable=SC2086
    kill -KILL $members
}

# kill_after PID SECONDS: kill a process after SECONDS and exit with 124, unless it ends before. It sleeps a second at a time, because a
# sleep outlives the shell that is killed meanwhile; and it checks the process each time, because its id may be reused.
kill_after() {
    left=$2
    while [ "$left" -gt 0 ]; do
        kill -0 "$1" || exit 0
        sleep 1
        left=$((left - 1))
    done
    trap '' TERM
    kill_tree "$1"
    exit 124
}

# wait_with_timeout PID SECONDS: wait for a process and return its exit code, or 124 after a timeout. SIGPIPE is ignored: the shell
# reports killed processes, and would be killed itself when the connection is gone.
wait_with_timeout() {
    trap '' PIPE
    (kill_after "$1" "$2") </dev/null >/dev/null 2>&1 3<&- 4>&- 5>&- &
    timer=$!
    wait "$1"
    code=$?
    kill "$timer" 2>/dev/null
    wait "$timer" 2>/dev/null
    [ "$?" -ne 124 ] || code=124
    return "$code"
}
