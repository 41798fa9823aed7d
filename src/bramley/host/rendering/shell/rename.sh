# shellcheck shell=sh
# Rename: TOKEN PATH NEW_PATH.
token=$1 path=$2 new_path=$3
printf '%s\n' "$token"
if [ -d "$new_path" ]; then
    fail "$new_path is a folder"
fi
sync
mv -f "$path" "$new_path" || fail "$path cannot be renamed"
