# shellcheck shell=sh disable=SC2154
# listing FOLDER: print in order what a folder holds: files with their sizes, links with their ends, what may be run, what may not be
# read, and what was written to since the folder was sealed. Contents are not read: a Node is asked often, and has thousands of files.
listing() {
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
