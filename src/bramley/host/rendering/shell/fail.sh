# shellcheck shell=sh
# fail TEXT: say why nothing was done, with a code that no program of ours uses.
fail() {
    printf '%s\n' "$1" >&2
    exit 125
}
