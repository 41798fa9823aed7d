#!/bin/sh
# Poll the dispatch endpoint until it answers with the configuration of a runner, run that runner for one job, and halt the VM.
# Exit code: 0 after 410 or an idle timeout, 1 for a refused token, otherwise that of the runner. Every exit is reported in the
# status share before the VM halts. The variables and their defaults are listed in docs/reference/guest.md.
set -u

url=${TUIST_RUNNER_DISPATCH_URL-}
idle_seconds=${TUIST_RUNNER_IDLE_TIMEOUT_SECONDS:-0}
shares=${DISPATCH_POLL_SHARES:-/Volumes/My Shared Files}
# The host replaces this file before the token expires; the copy that is made at boot would expire.
token_file=${DISPATCH_POLL_TOKEN_FILE:-$shares/env/sa_token}
status_folder=${DISPATCH_POLL_STATUS_FOLDER:-$shares/status}
folder=${DISPATCH_POLL_FOLDER-}
runner=${DISPATCH_POLL_RUNNER:-/Users/runner/actions-runner/run.sh}
# Empty: only the marker of the job-started hook counts.
worker=${DISPATCH_POLL_WORKER-Runner.Worker}
halt=${DISPATCH_POLL_HALT:-sudo -n /sbin/shutdown -h now}
curl=${DISPATCH_POLL_CURL:-curl}
poll_seconds=${DISPATCH_POLL_SECONDS:-2}
request_seconds=${DISPATCH_POLL_REQUEST_SECONDS:-10}
# How long the server may hold a poll; 0 for short polls only.
wait_seconds=${DISPATCH_POLL_WAIT_SECONDS:-50}
# Counted in polls and not by the clock, which may be corrected by hours soon after boot.
refusal_limit=${DISPATCH_POLL_REFUSAL_LIMIT:-30}

answer=
answer_seconds=
curl_code=0
has_long_poll=
hold_seconds=0
limit_seconds=
failures=0
pause_seconds=
token=
refused_token=
refusals=0
noted=
note_count=0
runner_pid=
watchdog_pid=
sleep_pid=
request_pid=

log() {
    printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1"
}

# Log the first of equal messages in a row, and then every thirtieth.
note() {
    if [ "$1" != "$noted" ]; then
        noted=$1
        note_count=0
    fi
    if [ $((note_count % 30)) -eq 0 ]; then
        log "$1"
    fi
    note_count=$((note_count + 1))
}

# Wait so that a signal is handled at once: the shell handles none while it waits for a foreground process.
pause() {
    sleep "$1" &
    sleep_pid=$!
    wait "$sleep_pid"
}

finish() {
    code=$?
    # A shutdown signals every process; the report must be written nevertheless.
    trap '' HUP INT TERM
    # The server must not hand out a job to a request that is still open.
    for pid in $request_pid $watchdog_pid $runner_pid; do
        kill -TERM "$pid" 2>/dev/null
    done
    log "Poller ended with exit code $code"
    if [ -d "$status_folder" ]; then
        printf '%s\n' "$code" >"$status_folder/.runner-rc.new" &&
            mv -f "$status_folder/.runner-rc.new" "$status_folder/runner-rc"
    fi
    sh -c "$halt"
}

read_token() {
    token=
    # A share that is not mounted, or a file that is being replaced, is not the end: the next poll reads it again.
    { IFS= read -r token <"$token_file"; } 2>/dev/null
    case $token in
    *[!A-Za-z0-9._~+/=-]*) token= ;;
    esac
}

print_headers() {
    printf 'header = "Authorization: Bearer %s"\n' "$token"
    [ "$hold_seconds" = 0 ] || printf 'header = "Prefer: wait=%s"\n' "$hold_seconds"
}

# Until a server has held a poll, a second is enough to recognize it: a server that hangs is given up as early as by a short poll.
choose_wait() {
    hold_seconds=$wait_seconds
    limit_seconds=$long_limit_seconds
    if [ -z "$has_long_poll" ]; then
        [ "$wait_seconds" = 0 ] || hold_seconds=1
        limit_seconds=$request_seconds
    fi
}

# Set `answer` to the status code, empty without a complete answer. The token goes through stdin: every user sees arguments.
request() {
    rm -f "$folder/answer" "$folder/headers"
    print_headers |
        "$curl" --disable --config - --silent --connect-timeout "$request_seconds" --max-time "$limit_seconds" \
            --request POST --header 'Content-Type: application/json' --data '{}' --dump-header "$folder/headers" \
            --output "$folder/answer" --write-out '%{http_code} %{time_total}\n' --url "$url" >"$folder/status" &
    request_pid=$!
    wait "$request_pid"
    curl_code=$?
    request_pid=
    answer=
    [ "$curl_code" -ne 0 ] || read -r answer answer_seconds <"$folder/status"
}

# Only 204 shows whether the server knows the long poll: other answers are sent at once, some of them by proxies.
recognize_long_poll() {
    [ "$answer" = 204 ] || return
    has_long_poll=
    while IFS= read -r line; do
        case $line in
        [Pp]reference-[Aa]pplied:*wait=*) has_long_poll=yes ;;
        esac
    done <"$folder/headers"
}

# An old server is polled at regular intervals, whatever it answers.
choose_pause() {
    pause_seconds=$poll_seconds
    case $has_long_poll-$answer in
    yes- | yes-429 | yes-5??)
        back_off
        return
        ;;
    yes-204)
        # A server that does not hold the request must not be polled without a pause.
        case $answer_seconds in
        0*) ;;
        *) pause_seconds=0 ;;
        esac
        ;;
    esac
    failures=0
}

# Double the pause with each failure in a row, up to 15 times the first one. The random factor separates VMs that failed at
# the same time; two VMs may have the same process ids and the same clock.
back_off() {
    pause_seconds=$(LC_ALL=C awk -v first="$poll_seconds" -v failures="$failures" \
        -v random="$(od -An -N2 -tu2 /dev/urandom)" 'BEGIN {
            doubled = failures < 4 ? 2 ^ failures : 15
            printf "%.3f", first * doubled * (0.5 + random / 65536)
        }')
    # Without awk or od, the regular one.
    pause_seconds=${pause_seconds:-$poll_seconds}
    failures=$((failures + 1))
}

# Print the configuration of the answer; nothing if it has none, or one that is not base64.
find_configuration() {
    LC_ALL=C tr -d '\n\r' <"$folder/answer" | LC_ALL=C sed -n \
        -e 's/.*"encoded_jit_config"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/' \
        -e 't found' -e 'd' -e ':found' \
        -e 's|\\u002[bB]|+|g' -e 's|\\u002[fF]|/|g' -e 's|\\u003[dD]|=|g' -e 's|\\/|/|g' \
        -e '\|^[A-Za-z0-9+/_-]*=*$|p'
}

count_refusal() {
    if [ "$token" != "$refused_token" ]; then
        refused_token=$token
        refusals=0
    fi
    if [ "$refusals" -ge "$refusal_limit" ]; then
        log "Token refused for too long"
        exit 1
    fi
    refusals=$((refusals + 1))
    note "$1"
}

# The runner calls this when its job starts; it ends the watchdog, so a job that removes the marker is not treated as idle.
write_hook() {
    cat >"$folder/job-started.sh" <<EOF_HOOK
: >"$folder/job-started"
{ read -r pid <"$folder/watchdog.pid" && kill -TERM "\$pid"; } 2>/dev/null
exit 0
EOF_HOOK
}

has_job() {
    [ -e "$folder/job-started" ] || { [ -n "$worker" ] && pgrep -x "$worker" >/dev/null 2>&1; }
}

watch_idle_runner() {
    trap 'kill "$sleep_pid" 2>/dev/null; exit 0' TERM
    pause "$idle_seconds"
    if ! has_job; then
        log "Terminating runner that got no job"
        : >"$folder/idle"
        kill -TERM "$(cat "$folder/runner.pid")"
    fi
}

start_watchdog() {
    case $idle_seconds in
    *[!0-9.]*) return ;;
    *[1-9]*) ;;
    *) return ;;
    esac
    # Before the runner: the hook must find it.
    watch_idle_runner &
    watchdog_pid=$!
    printf '%s\n' "$watchdog_pid" >"$folder/watchdog.pid"
}

run_job() {
    log "Starting runner"
    write_hook
    start_watchdog
    # The runner reads the configuration from the environment, which other users cannot see, and forwards signals to its processes.
    ACTIONS_RUNNER_INPUT_JITCONFIG=$1 ACTIONS_RUNNER_HOOK_JOB_STARTED=$folder/job-started.sh RUNNER_MANUALLY_TRAP_SIG=1 \
        "$runner" --disableupdate &
    runner_pid=$!
    printf '%s\n' "$runner_pid" >"$folder/runner.pid"
    # Without the shell's own message about a signal.
    wait "$runner_pid" 2>/dev/null
    runner_code=$?
    runner_pid=
    if [ -e "$folder/idle" ] && [ ! -e "$folder/job-started" ]; then
        runner_code=0
    fi
    exit "$runner_code"
}

poll() {
    pause_seconds=$poll_seconds
    read_token
    if [ -z "$token" ]; then
        count_refusal "Token missing"
        return
    fi
    choose_wait
    request
    recognize_long_poll
    choose_pause
    case $answer in
    401 | 403)
        count_refusal "Token refused"
        return
        ;;
    200)
        configuration=$(find_configuration)
        rm -f "$folder/answer"
        [ -z "$configuration" ] || run_job "$configuration"
        note "Answer without a runner configuration"
        ;;
    204) note "No job" ;;
    410)
        log "Drained"
        exit 0
        ;;
    '') note "No answer, curl exit code $curl_code" ;;
    *) note "Unexpected answer $answer" ;;
    esac
    refused_token=
    refusals=0
}

if (: >>"$status_folder/runner.log") 2>/dev/null; then
    exec >>"$status_folder/runner.log" 2>&1
fi
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -z "$url" ]; then
    log "TUIST_RUNNER_DISPATCH_URL is not set"
    exit 1
fi
case $wait_seconds in
*[!0-9]*) wait_seconds=0 ;;
*[1-9]*) ;;
*) wait_seconds=0 ;;
esac
long_limit_seconds=$(LC_ALL=C awk -v request="$request_seconds" -v wait="$wait_seconds" 'BEGIN { print request + wait }')
if [ -z "$folder" ]; then
    folder=$(mktemp -d "${TMPDIR:-/tmp}/dispatch-poll.XXXXXX") || exit 1
fi
(umask 077 && mkdir -p "$folder") || exit 1
# Of an earlier boot of this VM.
rm -f "$folder/job-started" "$folder/idle" "$folder/watchdog.pid" "$folder/runner.pid"

log "Polling for a job"
while :; do
    poll
    [ "$pause_seconds" = 0 ] || pause "$pause_seconds"
done
