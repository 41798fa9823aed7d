# shellcheck shell=sh
# Run a program on a terminal: TOKEN SECONDS PROGRAM ARGUMENT…; the terminal itself ends it when the connection is lost.
token=$1 seconds=$2
shift 2
printf '%s\n' "$token"
exec 3<&0
"$@" <&3 3<&- &
wait_with_timeout "$!" "$seconds"
exit "$?"
