#!/bin/sh
# The runner of a simulated guest. If its configuration names a simulated GitHub, it runs a job of that; otherwise it waits, runs
# the hook, prints its lines while it works, and exits. `guest_runner.py` is its port to virtual time: change them together.
set -u
configuration=${ACTIONS_RUNNER_INPUT_JITCONFIG-}
[ -n "$configuration" ] || exit 2
# The private folder of the poller.
folder=${ACTIONS_RUNNER_HOOK_JOB_STARTED%/*}
curl_pid=

fail() {
    printf '%s\n' "$1"
    exit 1
}

find_url() {
    printf '%s' "$configuration" | base64 --decode 2>/dev/null | LC_ALL=C sed -n 's/.*"url":"\([^"]*\)".*/\1/p'
}

find_text() {
    LC_ALL=C sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p' "$folder/job"
}

find_number() {
    LC_ALL=C sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p' "$folder/job"
}

# Post the configuration and further fields to a path; through stdin, since every user sees arguments.
post() {
    printf '{"encoded_jit_config":"%s"%s}' "$configuration" "$2" |
        curl --disable --silent --request POST --header 'Content-Type: application/json' --data-binary @- \
            --output "$folder/job" --write-out '%{http_code}\n' --url "$url$1" >"$folder/job-status" &
    curl_pid=$!
    wait "$curl_pid" || fail "Connection to GitHub lost"
    curl_pid=
    read -r status <"$folder/job-status"
    [ "$status" = 200 ] || fail "GitHub refused the runner with status $status"
    name=$(find_text name)
    [ -n "$name" ] || fail "The runner was removed from GitHub"
}

run_github_job() {
    printf '%s\n' "Listening for jobs"
    post /sim/runners ',"until":"start"'
    sh "$ACTIONS_RUNNER_HOOK_JOB_STARTED"
    printf '%s\n' "Running job $name"
    post "/sim/jobs/$(find_number id)/run" ""
    printf '%s\n' "Job $name ended after $(find_number seconds) s: $(find_text conclusion)"
    exit 0
}

run_scripted_job() {
    sh "$ACTIONS_RUNNER_HOOK_JOB_STARTED"
    printf '%s' "$SIM_RUNNER_LINES" | while IFS= read -r line; do
        printf '%s\n' "$line"
        sleep "$SIM_RUNNER_PAUSE"
    done
    sleep "$SIM_RUNNER_REST"
    exit "$SIM_RUNNER_CODE"
}

sleep "$SIM_RUNNER_WAIT"
url=$(find_url)
[ -n "$url" ] || run_scripted_job
# A terminated runner disconnects; GitHub then knows that it was lost.
trap '[ -z "$curl_pid" ] || kill -TERM "$curl_pid"; exit 143' TERM
run_github_job
