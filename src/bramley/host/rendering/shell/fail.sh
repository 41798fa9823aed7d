# shellcheck shell=sh
# fail TEXT: print an error, remove what new_file has created, and exit with a code that the programs do not use. There is no trap on
# EXIT for it: bash runs such a trap in a child, too, that is killed right after the fork, and the script forks while the new file exists.
new=
fail() {
    printf '%s\n' "$1" >&2
    [ -z "$new" ] || rm -rf "$new"
    exit 125
}
