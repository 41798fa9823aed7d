#!/bin/sh
# Runs one program and records how it ended, whether or not an agent runs at that moment.
#
#   supervisor.sh FOLDER PROGRAM [ARGUMENT]...
#
# Written into FOLDER, each by a rename: `supervisor` and `tart` (pid and start time), and at the end `ended` (exit code, seconds
# since 1970). The program inherits this script's stdout and stderr.
# Only features that dash and the sh of macOS share are used. The program runs in the foreground of a subshell, because sh
# ignores SIGINT in background programs, and tart is stopped by SIGINT.
set -u
umask 077
folder=$1
shift

# Sets `start` instead of printing it: a command substitution would start a process, and a VM waits for this.
start_time() {
    if [ -r "/proc/$1/stat" ]; then
        read -r line <"/proc/$1/stat"
        # The name in brackets may contain anything; the start time is the twentieth field after it.
        # shellcheck disable=SC2086
        set -- ${line##*) }
        start=${20}
    else
        start=$(LC_ALL=C TZ=UTC0 ps -o lstart= -p "$1")
    fi
}

record() {
    printf '%s\n' "$2" >"$folder/$1.tmp" && mv -f "$folder/$1.tmp" "$folder/$1"
}

# Survive the signals of a shutdown long enough to record the exit; the program still gets them.
trap : HUP INT TERM

start_time "$$"
record supervisor "$$ $start"
(
    # In a subshell $$ is still the parent; its own pid comes from /proc, or from a child.
    if [ -r /proc/self/stat ]; then
        read -r mine line </proc/self/stat
    else
        mine=$(exec /bin/sh -c 'echo "$PPID"')
    fi
    start_time "$mine"
    record tart "$mine $start"
    exec "$@"
)
code=$?
ended="$code $(date +%s)"

# Retried because the disk may be full; garbage collection may free space meanwhile.
tries=0
until record ended "$ended" || [ "$tries" -ge 120 ]; do
    tries=$((tries + 1))
    sleep 1
done

# Kill what the program left in our process group.
kill -s KILL -- "-$$" 2>/dev/null
