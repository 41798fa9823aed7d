# shellcheck shell=sh disable=SC2154
# Run a program: TOKEN SECONDS LENGTH PROGRAM ARGUMENT…; on the line come LENGTH characters for the program's input.

# start PROGRAM ARGUMENT…: become it, whatever functions of ours are called like it.
start() {
    exec "$@" 1>&2 3<&-
}
exec 3<&0 </dev/null
token=$1 seconds=$2 length=$3
shift 3
printf '%s\n' "$token"
take "$length"
if [ -n "$taken" ]; then
    give "$taken" | start "$@" &
else
    start "$@" </dev/null &
fi
attend "$!" "$seconds"
exit "$?"
