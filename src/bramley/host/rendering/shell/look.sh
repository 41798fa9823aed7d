# shellcheck shell=sh disable=SC2154
# tell NUMBER CODE: close an answer, whose bytes stand before it in base64.
tell() {
    printf '\n@%s %s %s\n' "$token" "$1" "$2"
}

# started SECONDS PROGRAM…: run a program without input, not longer than this.
started() {
    seconds=$1
    shift
    "$@" </dev/null 2>&1 4>&- 5>&- &
    await "$!" "$seconds"
}

# said NUMBER MOST SECONDS PROGRAM…: answer with the beginning of what it prints, and its code.
said() {
    number=$1 most=$2 limit=$3
    shift 3
    {
        code=$({
            {
                started "$limit" "$@"
                echo "$?" >&4
            } | {
                head -c "$most"
                cat >/dev/null
            } | base64 >&5
        } 4>&1)
    } 5>&1
    tell "$number" "$code"
}

# said_to_root NUMBER MOST SECONDS PROGRAM…: the same as root; sudo's own answer, if it lets nobody in.
said_to_root() {
    if [ "$is_root" = yes ]; then
        said "$@"
        return
    fi
    number=$1 most=$2 limit=$3
    shift 3
    said "$number" "$most" "$limit" sudo -n -- "$@"
}

# held NUMBER MOST PATH LENGTH BEGINNING: answer with the beginning of a file, or with nothing if it begins otherwise.
held() {
    if [ -f "$3" ] && [ -r "$3" ]; then
        if [ "$4" -eq 0 ] || [ "$(head -c "$4" <"$3" | base64 | tr -d '\n')" = "$5" ]; then
            head -c "$2" <"$3" | base64
        fi
        tell "$1" 0
    else
        tell "$1" 1
    fi
}

# found NUMBER PATH yes|no: answer with what is at a path, its digest if wanted, and the target of a link.
found() {
    if [ -e "$2" ] || [ -h "$2" ]; then
        describe "$2" "$3" | base64
        tell "$1" 0
    else
        tell "$1" 1
    fi
}

# describe PATH yes|no: print mode, owner, size and digest on a line, and then a link's target.
describe() {
    path=$1 wanted=$2
    sum=-
    if [ "$wanted" = yes ] && [ -f "$path" ] && [ ! -h "$path" ]; then
        sum=$(digest <"$path")
    elif [ "$wanted" = yes ] && [ -d "$path" ] && [ ! -h "$path" ]; then
        sum=$(listing "$path" | digest)
    fi
    # Owners and sizes hold no pattern, and names of files that do are not to be looked up.
    set -f
    # shellcheck disable=SC2046
    set -- $(ls -ld "$path")
    printf '%s %s:%s %s %s\n' "$1" "$3" "$4" "$5" "${sum:--}"
    if [ -h "$path" ]; then
        readlink "$path"
    fi
}
