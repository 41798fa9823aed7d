"""What a guest does: the script of its image, over it that of its VM, over it what the Pod's environment says.

`BRAMLEY_SIM_<FIELD>=<JSON or text>` in the environment file of the env share changes a field, so that whoever writes a Pod can say
how its guest works and ends.
"""

import fnmatch
import json
import os
from collections.abc import Mapping
from typing import Any

from bramley.api.names import guest as names
from bramley.sim.tart.effects import Plan
from bramley.sim.tart.settings import GUEST
from bramley.sim.tart.world import World

VARIABLE_PREFIX = "BRAMLEY_SIM_"
_ESCAPES: Mapping[str, str] = {"n": "\n", "r": "\r", "\\": "\\"}
_LONGEST = 1 << 20


def of_vm(world: World, plan: Plan, disk: Mapping[str, Any]) -> dict[str, Any]:
    """Return the script that a guest starts with."""
    script = {**GUEST, **disk.get("facts", {}).get("guest", {})}
    for pattern, fields in world.settings.guests.items():
        if fnmatch.fnmatchcase(plan.vm, pattern):
            script |= fields
    return script


def environment(plan: Plan) -> dict[str, str]:
    """Return what the host wrote into the env share; nothing without one."""
    share = plan.shares.get(names.ENV_SHARE)
    if share is None:
        return {}
    try:
        with open(os.path.join(share["path"], names.ENV_FILE), encoding="utf-8") as file:
            lines = file.read(_LONGEST).splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: _unescaped(value) for key, _, value in pairs}


def _unescaped(text: str) -> str:
    """Undo the two-character escapes of the environment file."""
    read, rest = "", text
    while "\\" in rest:
        before, _, rest = rest.partition("\\")
        read += before + _ESCAPES.get(rest[:1], "\\" + rest[:1])
        rest = rest[1:]
    return read + rest


def told_by(script: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the script as the environment changes it; fields that no script has are left alone."""
    changed = dict(script)
    for field in script:
        text = variables.get(VARIABLE_PREFIX + field.upper())
        if text is not None:
            changed[field] = _value(text)
    return changed


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
