# shellcheck shell=sh disable=SC2154
# Let a link point to a target: TOKEN PATH TARGET.
token=$1 path=$2 target=$3
printf '%s\n' "$token"
place "$path" "$token"
umask 022
ln -s -- "$target" "$new/$name" || fail "the link cannot be made"
swap
