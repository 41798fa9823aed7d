# shellcheck shell=sh
# new_file PATH TOKEN: create a private folder beside a future file, and remove those that interrupted runs have left. No signal is
# trapped: a shell that forks while one is trapped may lose it in the child, and would wait for that child for ever.
new_file() {
    name=${1##*/}
    folder=${1%/*}
    [ -d "$folder/" ] || fail "the folder ${folder:-/} does not exist"
    if [ -d "$1" ] && [ ! -h "$1" ]; then
        fail "$1 is a folder"
    fi
    rm -rf "$folder"/.bramley-new.????????????????."$name"
    new=$folder/.bramley-new.$2.$name
    umask 077
    mkdir "$new" || fail "${folder:-/} is not writable"
}

# check_size SIZE: check that all bytes have arrived.
check_size() {
    [ "$(($(wc -c <"$new/$name")))" -eq "$1" ] || fail "not all bytes have arrived"
}

# set_owner OWNER MODE: set owner and mode of the new file, before it is visible.
set_owner() {
    chown "$1" "$new/$name" || fail "the owner of the new file cannot be set to $1"
    chmod "$2" "$new/$name" || fail "the mode of the new file cannot be set to $2"
}

# install_file: rename the new file to its path. The sync must precede the rename: after a power loss the path must not lead to an
# incomplete file. A folder as the target makes mv replace a link to a folder, too.
install_file() {
    sync
    mv -f "$new/$name" "$folder/" || fail "the new file cannot be renamed to its path"
    rm -rf "$new"
}
