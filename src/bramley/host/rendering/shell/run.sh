# shellcheck shell=sh disable=SC2154
# Run a program: TOKEN SECONDS LENGTH PROGRAM ARGUMENT…; on the line come LENGTH characters: pieces for the
# environment, which `prepare` takes away, and the one for the program's input.
exec 3<&0 </dev/null
token=$1 seconds=$2 length=$3
shift 3
printf '%s\n' "$token"
take "$length"
prepare
if [ -n "$taken" ]; then
    give "$taken" | start "$@" &
else
    start "$@" </dev/null &
fi
attend "$!" "$seconds"
exit "$?"
