# shellcheck shell=sh
# take LENGTH: read so many characters from the line, file 3; base64 pieces with commas between them, all at once, since
# head may read further than it prints.
take() {
    taken=
    [ "$1" -eq 0 ] || taken=$(head -c "$1" <&3)
    [ "${#taken}" -eq "$1" ] || fail "the line was cut before everything had come"
}

# give PIECE: print a piece decoded; printf is no process, so nobody sees its arguments.
give() {
    printf '%s' "$1" 2>/dev/null | base64 --decode
}
