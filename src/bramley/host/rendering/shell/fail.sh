# shellcheck shell=sh
# fail TEXT: print an error and exit, with a code that the programs do not use.
fail() {
    printf '%s\n' "$1" >&2
    exit 125
}
