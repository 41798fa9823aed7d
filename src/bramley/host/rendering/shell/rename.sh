# shellcheck shell=sh
# Give another name: TOKEN PATH TO.
token=$1 path=$2 to=$3
printf '%s\n' "$token"
if [ -d "$to" ]; then
    fail "$to is a folder"
fi
sync
mv -f "$path" "$to" || fail "$path cannot get another name"
