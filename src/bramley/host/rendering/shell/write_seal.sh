# shellcheck shell=sh disable=SC2154
# Write the digest of a folder into the folder: TOKEN FOLDER. The file exists before the digest is computed, because later digests
# include all files that are newer than it.
token=$1 path=$2
printf '%s\n' "$token"
[ -d "$path" ] || fail "the folder $path does not exist"
: >"$path/$seal" || fail "$path is not writable"
sum=$(list_folder "$path" | digest)
printf '%s\n' "$sum" >"$path/$seal" || fail "$path is not writable"
chmod 0644 "$path/$seal"
