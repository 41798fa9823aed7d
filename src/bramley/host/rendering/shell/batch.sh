# shellcheck shell=sh disable=SC2154,SC2034
# Execute the commands of a batch: TOKEN LENGTH CLAIM CLAIM_LINE; LENGTH characters of base64 follow as input: a program that calls
# the functions here. Standard output is the progress, and the last command is that which failed.

# is_connected: fail if the connection has ended, and with it its watcher. A command that changes files is not interrupted: it would leave
# its temporary folder; programs have watchers of their own. dash forgets a process that has ended only in `jobs`.
is_connected() {
    jobs >/dev/null 2>&1
    kill -0 "$watcher" 2>/dev/null
}

# begin NUMBER: report the start of a command, on both outputs.
begin() {
    # First: a newer run that has stopped a command has ended the watcher, too.
    [ -z "$claim_line" ] || check_claim
    is_connected || quit 125
    printf '\n@%s start %s\n' "$token" "$1"
    printf '\n@%s start %s\n' "$token" "$1" >&2
}

# finish NUMBER CODE ACCEPTED_CODES yes|no: report the end of a command, and stop after a failure, unless it is ignored.
finish() {
    printf '\n@%s end %s %s\n' "$token" "$1" "$2"
    case " $3 " in
    *" $2 "*) return ;;
    esac
    [ "$4" != yes ] || return
    # A newer run may have stopped the command.
    [ -z "$claim_line" ] || check_claim
    quit "$2"
}

# wait_for SECONDS INTERVAL CODE MARK TEXT LIMIT MAX_BYTES PROGRAM…: repeat a program until it exits with CODE and has printed MARK first
# and TEXT later, in its first MAX_BYTES bytes; 124 if it does not. MARK shows that sudo has started the program: its own exit code must not be taken for that of the program.
wait_for() (
    end=$(($(date +%s) + $1)) interval=$2 expected=$3 mark=$4 text=$5 limit=$6 max_bytes=$7
    shift 7
    while :; do
        printed=$(run_limited "$limit" "$@")
        if [ "$?" -eq "$expected" ]; then
            case $(printf '%s' "$printed" 2>/dev/null | head -c "$max_bytes") in
            "$mark"*"$text"*) exit 0 ;;
            esac
        fi
        [ "$(date +%s)" -lt "$end" ] || exit 124
        sleep "$interval"
        is_connected || exit 125
        [ -z "$claim_line" ] || check_claim
    done
)

token=$1 claim=$3 claim_line=$4
printf '%s\n' "$token"
read_input "$2"
(while IFS= read -r _; do :; done) <&3 >/dev/null 2>&1 &
watcher=$!
eval "$(decode "$input")"
quit 0
