# shellcheck shell=sh disable=SC2154
# Create a symbolic link, or replace one: TOKEN PATH TARGET.
token=$1 path=$2 target=$3
printf '%s\n' "$token"
new_file "$path" "$token"
umask 022
ln -s -- "$target" "$new/$name" || fail "the link cannot be created"
install_file
