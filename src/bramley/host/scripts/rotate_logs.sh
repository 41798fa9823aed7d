#!/bin/sh
# Keeps logs from growing without end: rotate_logs MOST_BYTES FILE…
# launchd holds a job's log open for as long as the job lives, and for appending. So the log itself stays and is emptied, after its
# lines went into another file; a log that were renamed would be written to for ever, and never be seen again.
set -eu
most=$1
shift
code=0
for log in "$@"; do
    # A link may lead to a file of somebody else's.
    if [ ! -f "$log" ] || [ -L "$log" ]; then
        continue
    fi
    if [ "$(wc -c <"$log")" -gt "$most" ]; then
        # What was kept so far is the only thing that may be lost, and not before what replaces it is whole.
        if cp -p "$log" "$log.new" && mv -f "$log.new" "$log.1"; then
            : >"$log"
        else
            # A full disk is what logs are emptied for: then these lines are lost, and what was kept before stays.
            rm -f "$log.new"
            : >"$log" || code=1
        fi
    fi
done
exit "$code"
