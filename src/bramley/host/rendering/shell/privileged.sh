# shellcheck shell=sh disable=SC2154,SC2034
# Ask what is root's: in one root shell, or as the user where sudo would ask for a password.
if sudo -n true 2>/dev/null; then
    sudo -n -- /bin/sh -c "$functions
is_root=yes
$asked"
else
    is_root=no
    eval "$asked"
fi
