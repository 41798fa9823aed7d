"""Who processes of a simulated Mac are: users and groups of the model as numbers for the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bramley.sim.macos import users
from bramley.sim.ssh.processes import Identity


def of(state: Mapping[str, Any], name: str) -> Identity:
    """Return a user of the Mac; LookupError if there is none of this name."""
    uid = users.uid_of(state, name)
    if uid is None:
        raise LookupError(name)
    groups = tuple(users.GROUPS[group] for group in users.groups_of(state, name))
    return Identity(name, uid, groups[0], groups)


def files(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the files from which ordinary programs know users and groups by name."""
    accounts = [
        f"{name}:*:{of(state, name).uid}:{of(state, name).gid}:{name}:{user['home']}:/bin/zsh\n"
        for name, user in state["users"].items()
    ]
    members = {
        group: ",".join(name for name in state["users"] if group in users.groups_of(state, name))
        for group in users.GROUPS
    }
    groups = [f"{group}:*:{gid}:{members[group]}\n" for group, gid in users.GROUPS.items()]
    return {"/etc/passwd": "".join(accounts), "/etc/group": "".join(groups)}
