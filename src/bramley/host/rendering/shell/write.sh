# shellcheck shell=sh disable=SC2154
# Write a file: TOKEN SECONDS LENGTH SIZE PATH OWNER MODE [CHECK ARGUMENT…], where {} stands for the new file.
exec 3<&0 </dev/null
token=$1 seconds=$2 length=$3 size=$4 path=$5 owner=$6 mode=$7
shift 7
printf '%s\n' "$token"
take "$length"
place "$path" "$token"
give "$taken" >"$new/$name" || fail "the new file could not be written"
measure "$size"
own "$owner" "$mode"
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
    attend "$!" "$seconds" || fail "$1 does not accept the new file"
fi
swap
