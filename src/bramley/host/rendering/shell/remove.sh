# shellcheck shell=sh
# Remove a file or a folder: TOKEN PATH.
token=$1 path=$2
printf '%s\n' "$token"
rm -rf "$path" || fail "$path cannot be removed"
