# shellcheck shell=sh disable=SC2154
# digest: print the SHA-256 of standard input. Both systems have both programs; openssl uses the processor's instructions for it and
# is ten times as fast.
digest() {
    if command -v openssl >/dev/null 2>&1; then
        sum=$(openssl dgst -sha256)
        printf '%s' "${sum##* }"
    else
        sum=$(shasum -a 256)
        printf '%s' "${sum%% *}"
    fi
}

# list_folder FOLDER: print the sorted contents of a folder: files with sizes, links with targets, executable and unreadable files, and
# files modified since the folder was sealed. Contents are not read: a Node is probed often and has thousands of files.
list_folder() {
    (
        cd "$1" || exit
        {
            find . -type f ! -name "$seal" -exec wc -c {} + | awk '$2 != "total" { sub(/^ +/, ""); print "size", $0 }'
            find . -type l | awk '{ print "link", $0 }'
            find . -type l -exec readlink {} + | awk '{ print "end", $0 }'
            find . -type f -perm -111 | awk '{ print "run", $0 }'
            find . -type f ! -perm -444 | awk '{ print "closed", $0 }'
            find . -type d ! -perm -555 | awk '{ print "closed", $0 }'
            find . -type f -newer "$seal" | awk '{ print "written", $0 }'
        } 2>/dev/null | sort
    )
}
