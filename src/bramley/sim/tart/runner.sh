#!/bin/sh
# The runner of a simulated guest: waits for a job, runs the hook, prints its lines while it works, and exits.
set -u
[ -n "${ACTIONS_RUNNER_INPUT_JITCONFIG-}" ] || exit 2
sleep "$SIM_RUNNER_WAIT"
sh "$ACTIONS_RUNNER_HOOK_JOB_STARTED"
printf '%s' "$SIM_RUNNER_LINES" | while IFS= read -r line; do
    printf '%s\n' "$line"
    sleep "$SIM_RUNNER_PAUSE"
done
sleep "$SIM_RUNNER_REST"
exit "$SIM_RUNNER_CODE"
