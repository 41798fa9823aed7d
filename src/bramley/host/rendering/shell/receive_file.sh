# shellcheck shell=sh disable=SC2154
# Receive a file: TOKEN PATH OWNER MODE SIZE SHA256; its bytes follow as input, until end of file.
token=$1 path=$2 owner=$3 mode=$4 size=$5 expected=$6
printf '%s\n' "$token"
new_file "$path" "$token"
cat >"$new/$name" || fail "the new file cannot be written"
check_size "$size"
[ "$(digest <"$new/$name")" = "$expected" ] || fail "the received bytes differ from those that were sent"
set_owner "$owner" "$mode"
install_file
