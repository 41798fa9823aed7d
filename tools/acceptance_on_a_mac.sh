#!/bin/sh
# Tries on a Mac what was only tested elsewhere; docs/unverified-on-macos.md says what that is.
#
#   sh tools/acceptance_on_a_mac.sh                 the system only: nothing is installed, nothing is changed
#   sh tools/acceptance_on_a_mac.sh REGISTRY/IMAGE  also pulls this image, boots one VM of it and deletes it
#
# Run it as the user that the agent is to run as, in the session at the screen for the second form. The VM and the image are
# kept in a folder of their own, which is removed at the end; other VMs stay as they are.
set -eu
cd "$(dirname "$0")/.."
image=${1:-}
python=.venv/bin/python

if [ "$(uname -s)" != Darwin ]; then
    echo "This is no Mac; going on all the same, to try the script itself." >&2
fi
[ -x "$python" ] || make install

failed=0
step() {
    echo "== $1"
    shift
    "$@" || failed=1
}

step "the agent's own tests of this machine" "$python" -m pytest -q \
    tests/unit/agent/platform tests/unit/agent/processes tests/unit/agent/supervised_runs
step "one contract for real and simulated programs" "$python" -m pytest -q tests/contract/programs
if [ -n "$image" ]; then
    step "this machine and its tart" "$python" -m tools.acceptance --image "$image"
else
    step "this machine" "$python" -m tools.acceptance
fi

if [ "$failed" -ne 0 ]; then
    echo "Something is not as it should be. Please report the lines above."
    exit 1
fi
echo "All as it should be. Please remove the lines of docs/unverified-on-macos.md that this has shown."
