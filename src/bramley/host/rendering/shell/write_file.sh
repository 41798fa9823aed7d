# shellcheck shell=sh disable=SC2154
# Write a file: TOKEN SECONDS LENGTH SIZE PATH OWNER MODE [CHECK ARGUMENT…], where {} stands for the new file; LENGTH characters of
# base64 follow as input.
token=$1 seconds=$2 length=$3 size=$4 path=$5 owner=$6 mode=$7
shift 7
printf '%s\n' "$token"
read_input "$length"
new_file "$path" "$token"
decode "$input" >"$new/$name" || fail "the new file cannot be written"
check_size "$size"
set_owner "$owner" "$mode"
if [ "$#" -gt 0 ]; then
    count=$#
    while [ "$count" -gt 0 ]; do
        word=$1
        shift
        [ "$word" != '{}' ] || word=$new/$name
        set -- "$@" "$word"
        count=$((count - 1))
    done
    "$@" </dev/null 1>&2 3<&- &
    wait_connected "$!" "$seconds" || fail "$1 does not accept the new file"
fi
install_file
