#!/bin/sh
# Runs one program and writes down how it ended, whether or not an agent is there to see it.
#
#   supervisor.sh FOLDER PROGRAM [ARGUMENT]...
#
# Written into FOLDER, each by a rename: `supervisor` and `tart` (number of the process, and when it began), and at the end
# `ended` (exit code, seconds since 1970). What the program prints goes where this script's own output goes.
# Only what dash and the sh of macOS share is used. The program runs in the foreground of a subshell, because sh makes
# programs in the background deaf to the signal by which tart is stopped.
set -u
umask 077
folder=$1
shift

# Sets `start` instead of printing it: a VM waits for this, and every process that is not begun is time won.
began() {
    if [ -r "/proc/$1/stat" ]; then
        read -r line <"/proc/$1/stat"
        # The name in brackets may hold anything; the start is the twentieth field behind it.
        # shellcheck disable=SC2086
        set -- ${line##*) }
        start=${20}
    else
        start=$(LC_ALL=C TZ=UTC0 ps -o lstart= -p "$1")
    fi
}

note() {
    printf '%s\n' "$2" >"$folder/$1.tmp" && mv -f "$folder/$1.tmp" "$folder/$1"
}

# Outlive the signals of a shutdown long enough to tell; the program gets them as ever.
trap : HUP INT TERM

began "$$"
note supervisor "$$ $start"
(
    # In a subshell $$ is still the parent; the system knows better, or else a child of ours.
    if [ -r /proc/self/stat ]; then
        read -r mine line </proc/self/stat
    else
        mine=$(exec /bin/sh -c 'echo "$PPID"')
    fi
    began "$mine"
    note tart "$mine $start"
    exec "$@"
)
code=$?
ended="$code $(date +%s)"

# A full disk is cleared by others some day; the exit code is worth the wait.
tries=0
until note ended "$ended" || [ "$tries" -ge 120 ]; do
    tries=$((tries + 1))
    sleep 1
done

# Nothing that the program started in our group outlives it.
kill -s KILL -- "-$$" 2>/dev/null
