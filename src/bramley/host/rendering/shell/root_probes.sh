# shellcheck shell=sh disable=SC2154,SC2034
# Run the probes that need root: in one root shell, or as the user if sudo would ask for a password.
if sudo -n true 2>/dev/null; then
    sudo -n -- /bin/sh -c "$functions
is_root=yes
$root_probes"
else
    is_root=no
    eval "$root_probes"
fi
