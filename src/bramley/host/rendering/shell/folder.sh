# shellcheck shell=sh
# Make a folder: TOKEN PATH OWNER MODE.
token=$1 path=$2 owner=$3 mode=$4
printf '%s\n' "$token"
umask 022
mkdir -p "$path" || fail "the folder cannot be made"
chown "$owner" "$path" || fail "the folder cannot be given to $owner"
chmod "$mode" "$path" || fail "the folder cannot get the mode $mode"
