# shellcheck shell=sh disable=SC2154
# Run a program: TOKEN SECONDS LENGTH PROGRAM ARGUMENT…; LENGTH characters of base64 follow as the program's input.

# start PROGRAM ARGUMENT…: replace the shell by a program, even if a function here has its name.
start() {
    exec "$@" 1>&2 3<&-
}
token=$1 seconds=$2 length=$3
shift 3
printf '%s\n' "$token"
read_input "$length"
if [ -n "$input" ]; then
    decode "$input" | start "$@" &
else
    start "$@" </dev/null &
fi
wait_connected "$!" "$seconds"
exit "$?"
