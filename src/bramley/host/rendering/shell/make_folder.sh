# shellcheck shell=sh
# Create a folder: TOKEN PATH OWNER MODE.
token=$1 path=$2 owner=$3 mode=$4
printf '%s\n' "$token"
umask 022
mkdir -p "$path" || fail "the folder cannot be created"
chown "$owner" "$path" || fail "the owner of the folder cannot be set to $owner"
chmod "$mode" "$path" || fail "the mode of the folder cannot be set to $mode"
