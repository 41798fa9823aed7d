#!/bin/sh
# Rotate logs that are too large: rotate_logs MAX_BYTES FILE…
# launchd keeps a job's log open, for appending, as long as the job runs. So a log is copied and then truncated in place; launchd would
# keep writing to a renamed log.
set -eu
max_bytes=$1
shift
code=0
for log in "$@"; do
    # A link may point to a foreign file.
    if [ ! -f "$log" ] || [ -L "$log" ]; then
        continue
    fi
    if [ "$(wc -c <"$log")" -gt "$max_bytes" ]; then
        # The previous copy is replaced only once the new copy is complete.
        if cp -p "$log" "$log.new" && mv -f "$log.new" "$log.1"; then
            : >"$log"
        else
            # The disk is probably full, which truncation must fix: these lines are lost, and the previous copy stays.
            rm -f "$log.new"
            : >"$log" || code=1
        fi
    fi
done
exit "$code"
