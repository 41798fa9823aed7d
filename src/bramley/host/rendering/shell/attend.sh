# shellcheck shell=sh
# hear PID: end a process when whoever asked for it is gone.
hear() {
    while IFS= read -r _; do :; done
    trap '' TERM
    end "$1"
}

# attend PID SECONDS: wait for a process as long as somebody on the line, file 3, waits, too.
attend() {
    (hear "$1") <&3 >/dev/null 2>&1 &
    ear=$!
    await "$1" "$2"
    code=$?
    kill "$ear" 2>/dev/null
    wait "$ear" 2>/dev/null
    return "$code"
}
