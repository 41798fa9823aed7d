# shellcheck shell=sh
# place PATH TOKEN: make a private folder beside a file that is to come, and drop those that cut runs have left. No signal is
# trapped: a shell that forks while one is may lose it in the child, and who is waited for would never end.
place() {
    name=${1##*/}
    folder=${1%/*}
    [ -d "$folder/" ] || fail "the folder ${folder:-/} is not there"
    if [ -d "$1" ] && [ ! -h "$1" ]; then
        fail "$1 is a folder"
    fi
    rm -rf "$folder"/.bramley-new.????????????????."$name"
    new=$folder/.bramley-new.$2.$name
    trap 'rm -rf "$new"' EXIT
    umask 077
    mkdir "$new" || fail "nothing can be written into ${folder:-/}"
}

# own OWNER MODE: give the new file to its owner.
own() {
    chown "$1" "$new/$name" || fail "the new file cannot be given to $1"
    chmod "$2" "$new/$name" || fail "the new file cannot get the mode $2"
}

# swap: let the new file be the one that everybody sees. A folder as the target makes mv replace also a link to a folder.
swap() {
    sync
    mv -f "$new/$name" "$folder/" || fail "the new file could not be put in its place"
}

# measure SIZE: see that all bytes have come.
measure() {
    [ "$(($(wc -c <"$new/$name")))" -eq "$1" ] || fail "not all bytes have come"
}
