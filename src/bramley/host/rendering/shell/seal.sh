# shellcheck shell=sh disable=SC2154
# Note in a folder what it holds: TOKEN FOLDER.
token=$1 path=$2
printf '%s\n' "$token"
[ -d "$path" ] || fail "the folder $path is not there"
: >"$path/$seal" || fail "nothing can be written into $path"
sum=$(listing "$path" | digest)
printf '%s\n' "$sum" >"$path/$seal" || fail "nothing can be written into $path"
chmod 0644 "$path/$seal"
