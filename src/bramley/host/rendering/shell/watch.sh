# shellcheck shell=sh
# family PID: list a process and all that it started.
family() {
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

# end PID: end a process and all that it started; those who do not listen are ended a second later.
end() {
    members=$(family "$1")
    # shellcheck disable=SC2086
    kill -TERM $members
    sleep 1
    # shellcheck disable=SC2086
    kill -KILL $members
}

# alarm PID SECONDS: end a process in so many seconds and say 124, unless ended before. It sleeps in small pieces, since the
# piece that is being slept when it is ended goes on; and it looks each time, since the number may be another's one day.
alarm() {
    left=$2
    while [ "$left" -gt 0 ]; do
        kill -0 "$1" || exit 0
        sleep 1
        left=$((left - 1))
    done
    trap '' TERM
    end "$1"
    exit 124
}

# await PID SECONDS: wait for a process and return its code, or 124 if it took too long. The shell tells of a process that was
# ended, and would end itself of it where nobody listens any more.
await() {
    trap '' PIPE
    (alarm "$1" "$2") </dev/null >/dev/null 2>&1 3<&- 4>&- 5>&- &
    timer=$!
    wait "$1"
    code=$?
    kill "$timer" 2>/dev/null
    wait "$timer" 2>/dev/null
    [ "$?" -ne 124 ] || code=124
    return "$code"
}
