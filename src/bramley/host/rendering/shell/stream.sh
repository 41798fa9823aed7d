# shellcheck shell=sh disable=SC2154
# Receive a file: TOKEN PATH OWNER MODE SIZE SHA256; on the line come its bytes, and then the end.
token=$1 path=$2 owner=$3 mode=$4 size=$5 wanted=$6
printf '%s\n' "$token"
place "$path" "$token"
cat >"$new/$name" || fail "the new file could not be written"
measure "$size"
[ "$(digest <"$new/$name")" = "$wanted" ] || fail "the bytes that came are not those that were sent"
own "$owner" "$mode"
swap
