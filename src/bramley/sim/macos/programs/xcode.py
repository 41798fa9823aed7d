"""Xcode's command line of a simulated Mac: which Xcode is selected, its licence, and its compiler."""

from __future__ import annotations

from typing import Any

from bramley.sim.macos import fresh_install
from bramley.sim.macos.call import Call, NotModelled, Result, needs_root
from bramley.sim.macos.mac import Mac

_NONE_SELECTED, _NOT_ACCEPTED, _NOT_FOUND = 2, 69, 72
_UNSELECTED = "xcode-select: error: unable to get active developer directory, use `sudo xcode-select --switch path/to/Xcode.app` to set one\n"
_AGREE = "You have not agreed to the Xcode license agreements. Please run 'sudo xcodebuild -license' to review and agree.\n"


def xcode_select(mac: Mac, call: Call) -> Result:
    """Print the selected folder, or select one."""
    match call.argv[1:]:
        case ["-p" | "--print-path"]:
            selected = _state(mac)["selected"]
            return (
                Result(out=f"{selected}\n") if selected else Result(_NONE_SELECTED, err=_UNSELECTED)
            )
        case ["-s" | "--switch", path]:
            return _select(mac, call, path)
    raise NotModelled


def _select(mac: Mac, call: Call, path: str) -> Result:
    refused = needs_root(
        call,
        "xcode-select: error: --switch must be run as root (e.g. `sudo xcode-select --switch <xcode_folder_path>`).",
    )
    if refused:
        return refused
    if not mac.files.is_folder(path):
        return Result(1, err=f"xcode-select: error: invalid developer directory '{path}'\n")
    with mac.change() as state:
        state["xcode"] = {**_state(mac), "selected": path}
    return Result()


def xcodebuild(mac: Mac, call: Call) -> Result:
    """Check or accept the licence."""
    if call.argv[1:2] != ("-license",) or call.argv[2:] not in {("check",), ("accept",)}:
        raise NotModelled
    if not _state(mac)["selected"]:
        return Result(_NOT_FOUND, err=_UNSELECTED)
    if call.argv[2] == "check":
        return Result() if _state(mac)["is_accepted"] else Result(_NOT_ACCEPTED, err=_AGREE)
    refused = needs_root(call, "xcodebuild: error: the license must be accepted as root.")
    if refused:
        return refused
    with mac.change() as state:
        state["xcode"] = {**_state(mac), "is_accepted": True}
    return Result()


def xcrun(mac: Mac, call: Call) -> Result:
    """Print the path of a tool of the selected Xcode, whose licence must be accepted."""
    match call.argv[1:]:
        case ["--find", tool]:
            found = f"{_state(mac)['selected']}/{fresh_install.XCODE_TOOLS}/{tool}"
        case _:
            raise NotModelled
    if not _state(mac)["selected"] or not mac.files.is_file(found):
        return Result(_NOT_FOUND, err=f'xcrun: error: unable to find utility "{tool}"\n')
    return (
        Result(out=f"{found}\n")
        if _state(mac)["is_accepted"]
        else Result(_NOT_ACCEPTED, err=_AGREE)
    )


def _state(mac: Mac) -> dict[str, Any]:
    return {"selected": "", "is_accepted": False, **mac.state.get("xcode", {})}
