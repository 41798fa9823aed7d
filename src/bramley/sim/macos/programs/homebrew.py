"""Homebrew of a simulated Mac: its installer, and formulae that are always installed in the same version."""

from __future__ import annotations

from typing import Any

from bramley.sim.macos import fresh_install
from bramley.sim.macos.call import Call, NotModelled, Result, read_file
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import sudoers

INSTALLER = b"#!/bin/bash\n# simulated homebrew-installer 1\n"
# By formula, the tap that has it; core needs none.
_TAPS = {"packer": "hashicorp/tap", "crane": "", "jq": ""}
_VERSIONS = {"packer": "1.14.2", "crane": "0.20.6", "jq": "1.8.1"}
_AS_ROOT = "Error: Running Homebrew as root is extremely dangerous and no longer supported.\n"


def bash(mac: Mac, call: Call) -> Result:
    """Run Homebrew's installer, which needs sudo without a password and a developer folder; no other script is modelled."""
    try:
        is_installer = len(call.argv) == 2 and read_file(mac, call, call.argv[1]) == INSTALLER
    except PermissionError:
        is_installer = False
    if not is_installer:
        raise NotModelled
    if call.is_root:
        return Result(1, err="Don't run this as root!\n")
    if not sudoers.rules_for(mac, call.user).without_password:
        return Result(
            1,
            err=f"Need sudo access on macOS (e.g. the user {call.user} needs to be an Administrator)!\n",
        )
    fresh_install.lay_out_homebrew(mac, call.user)
    return Result()


def brew(mac: Mac, call: Call) -> Result:
    """Run one command."""
    if call.is_root:
        return Result(1, err=_AS_ROOT)
    installed = _state(mac)["formulae"]
    match call.argv[1:]:
        case ["list", "--versions", *names] if names:
            lines = [f"{name} {installed[name]}\n" for name in names if name in installed]
            return Result(0 if len(lines) == len(names) else 1, out="".join(lines))
        case ["list", "--pinned"]:
            return Result(out="".join(f"{name}\n" for name in _state(mac)["pinned"]))
        case ["tap", name]:
            return _add(mac, "taps", name)
        case ["install", name]:
            return _install(mac, name)
        case ["pin", name] if name in installed:
            return _add(mac, "pinned", name)
        case ["pin", name]:
            return Result(1, err=f"Error: {name} not installed\n")
    raise NotModelled


def _install(mac: Mac, full_name: str) -> Result:
    tap, _, name = full_name.rpartition("/")
    if name not in _TAPS or _TAPS[name] != tap:
        return Result(1, err=f'Error: No available formula with the name "{full_name}".\n')
    with mac.change() as state:
        formulae = {**_state(mac)["formulae"], name: _VERSIONS[name]}
        state["homebrew"] = {**_state(mac), "formulae": formulae}
    return Result()


def _add(mac: Mac, kind: str, name: str) -> Result:
    with mac.change() as state:
        names = _state(mac)[kind]
        state["homebrew"] = {**_state(mac), kind: sorted({*names, name})}
    return Result()


def _state(mac: Mac) -> dict[str, Any]:
    return {"taps": [], "formulae": {}, "pinned": [], **mac.state.get("homebrew", {})}
