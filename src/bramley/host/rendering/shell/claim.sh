# shellcheck shell=sh disable=SC2154
# The claim of a run: $claim is the file, and $claim_line its text for this run. A run announces itself by a link beside the file, with
# its process and its epoch, before it reads the claim; a newer run writes the claim before it looks for such links. So either the older
# run finds the new claim and is refused, or the newer one finds the link and waits.
marker=
watcher=

# quit CODE: end this script, and the process that watches the connection.
quit() {
    if [ -n "$watcher" ]; then
        kill "$watcher" 2>/dev/null
        wait "$watcher" 2>/dev/null
    fi
    [ -z "$marker" ] || rm -rf "$marker" "$marker.new"
    exit "$1"
}

# refuse: print the claim of the other run, and exit.
refuse() {
    printf '\n@%s refused %s\n' "$token" "$(claim_content)"
    quit 125
}

claim_content() {
    [ ! -f "$claim" ] || head -c 4096 <"$claim" | base64 | tr -d '\n'
}

# check_claim: refuse unless the Mac is claimed by this run.
check_claim() {
    line=
    [ ! -f "$claim" ] || IFS= read -r line <"$claim"
    [ "$line" = "$claim_line" ] || refuse
}

# announce EPOCH: create the link of this process.
announce() {
    marker=$claim.$token
    ln -s -- "$$ $1" "$marker" || fail "$marker cannot be created"
}

# expect_claim CONTENT: refuse unless the Mac has no claim, this one in base64, or our own.
expect_claim() {
    current=$(claim_content)
    if [ -n "$current" ] && [ "$current" != "$1" ]; then
        check_claim
    fi
}

# write_claim: claim the Mac. Not as other files are written: that removes unfinished files, and those of a run that claims the Mac at
# the same time are none. A full disk is noticed by reading the new file, because not every shell reports it.
write_claim() {
    line=
    if printf '%s\n' "$claim_line" >"$marker.new" && chmod 0644 "$marker.new"; then
        IFS= read -r line <"$marker.new"
    fi
    if [ "$line" = "$claim_line" ] && [ ! -d "$claim" ] && mv -f "$marker.new" "$claim"; then
        return
    fi
    printf '%s cannot be written\n' "$claim" >&2
    quit 125
}

# kill_children PID: kill all descendants of a process; the batch itself then reports that it was refused.
kill_children() {
    # shellcheck disable=SC2046
    for member in $(process_tree "$1"); do
        [ "$member" = "$1" ] || kill -KILL "$member"
    done
}

# wait_for_others EPOCH: wait until no other run executes a command; after ten seconds stop the command, and later the whole run.
wait_for_others() {
    for other in "$claim".????????????????; do
        if [ -h "$other" ] && [ "$other" != "$marker" ]; then
            wait_for_other "$other" "$1"
        fi
    done
    check_claim
}

# wait_for_other LINK EPOCH: wait until a process has ended; refuse if it belongs to a newer leader.
wait_for_other() {
    holder=$(readlink "$1")
    left=50 stop=kill_children
    while is_holder "${holder%% *}" "${1##*.}"; do
        [ "${holder##* }" -le "$2" ] || refuse
        check_claim
        if [ "$left" -eq 0 ]; then
            "$stop" "${holder%% *}" 2>/dev/null
            left=50 stop=kill_tree
        fi
        sleep 0.2
        left=$((left - 1))
    done
    rm -rf "$1" "$1.new"
}

# is_holder PID TOKEN: succeed if this process has the token among its arguments; another one may have got its id.
is_holder() {
    case $(ps -ww -o command= -p "$1") in
    *"$2"*) return 0 ;;
    esac
    return 1
}
