# shellcheck shell=sh disable=SC2154
# end_result NUMBER CODE: end a result, whose bytes precede this line in base64.
end_result() {
    printf '\n@%s %s %s\n' "$token" "$1" "$2"
}

# run_limited SECONDS PROGRAM…: run a program without input, not longer than SECONDS.
run_limited() {
    seconds=$1
    shift
    "$@" </dev/null 2>&1 4>&- 5>&- &
    wait_with_timeout "$!" "$seconds"
}

# probe_run NUMBER MAX_BYTES SECONDS PROGRAM…: print the beginning of a program's output, and its exit code.
probe_run() {
    number=$1 max_bytes=$2 limit=$3
    shift 3
    {
        code=$({
            {
                run_limited "$limit" "$@"
                echo "$?" >&4
            } | {
                head -c "$max_bytes"
                cat >/dev/null
            } | base64 >&5
        } 4>&1)
    } 5>&1
    end_result "$number" "$code"
}

# probe_run_as_root NUMBER MAX_BYTES SECONDS PROGRAM…: the same as root; the error of sudo if it refuses.
probe_run_as_root() {
    if [ "$is_root" = yes ]; then
        probe_run "$@"
        return
    fi
    number=$1 max_bytes=$2 limit=$3
    shift 3
    probe_run "$number" "$max_bytes" "$limit" sudo -n -- "$@"
}

# probe_file NUMBER MAX_BYTES PATH LENGTH PREFIX: print the beginning of a file; with nothing if it does not begin with PREFIX.
probe_file() {
    if [ -f "$3" ] && [ -r "$3" ]; then
        if [ "$4" -eq 0 ] || [ "$(head -c "$4" <"$3" | base64 | tr -d '\n')" = "$5" ]; then
            head -c "$2" <"$3" | base64
        fi
        end_result "$1" 0
    else
        end_result "$1" 1
    fi
}

# probe_stat NUMBER PATH yes|no: print what exists at a path, its digest if requested, and the target of a link.
probe_stat() {
    if [ -e "$2" ] || [ -h "$2" ]; then
        describe "$2" "$3" | base64
        end_result "$1" 0
    else
        end_result "$1" 1
    fi
}

# describe PATH yes|no: print mode, owner, size and digest on one line, and then the target of a link.
describe() {
    path=$1 with_digest=$2
    sum=-
    if [ "$with_digest" = yes ] && [ -f "$path" ] && [ ! -h "$path" ]; then
        sum=$(digest <"$path")
    elif [ "$with_digest" = yes ] && [ -d "$path" ] && [ ! -h "$path" ]; then
        sum=$(list_folder "$path" | digest)
    fi
    # Without globbing: the output of ls may contain a file name with a pattern.
    set -f
    # shellcheck disable=SC2046
    set -- $(ls -ld "$path")
    printf '%s %s:%s %s %s\n' "$1" "$3" "$4" "$5" "${sum:--}"
    if [ -h "$path" ]; then
        readlink "$path"
    fi
}
