"""Lets the simulated tart know whether its user is logged in at the console: VMs need that session, and end with it."""

from __future__ import annotations

from bramley.sim.macos import users
from bramley.sim.macos.mac import Mac
from bramley.sim.tart.slots import DEAD_SESSION

_FOLDER = ".tart/.sim"


def tell(mac: Mac) -> None:
    """Mark the user's tart, once there is one, as without a session, or take the mark away."""
    user = str(mac.state["settings"]["user"])
    home = users.home_of(mac.state, user)
    if not mac.files.is_folder(f"{home}/.tart"):
        return
    mark = f"{home}/{_FOLDER}/{DEAD_SESSION}"
    has_session = mac.state["console"]["user"] == user
    if has_session and mac.files.exists(mark):
        mac.files.remove(mark)
    elif not (has_session or mac.files.exists(mark)):
        if not mac.files.is_folder(f"{home}/{_FOLDER}"):
            mac.files.make_folder(f"{home}/{_FOLDER}", owner=f"{user}:staff")
        mac.files.write(mark, b"", owner=f"{user}:staff")
