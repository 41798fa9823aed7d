"""config.sh of a simulated GitHub Actions runner: registers at the forge of the Mac, if it has one, and records how it was called.

As with the real one, each option may come from a variable `ACTIONS_RUNNER_INPUT_…`, nothing is read from a pipe, and an existing
registration is refused. The token is recorded as a digest. Behind SSH `sim.ssh.actions_runner` registers at a simulated GitHub.
"""

from __future__ import annotations

import codecs
import getopt
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from bramley.api.names import host
from bramley.sim.macos.call import Call, Exit, NotModelled, Result
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import third_party

_VALUES = ("url", "token", "name", "labels", "runnergroup", "work")
_PREFIX = "ACTIONS_RUNNER_INPUT_"
_CONFIGURED = "Cannot configure the runner because it is already configured.\n"


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration at a simulated GitHub: the id of the runner, and where and with what its process connects."""

    runner_id: int
    url: str
    configuration: str = field(repr=False)


def config_sh(mac: Mac, call: Call) -> Result:
    """Print the version, or register a runner below its folder."""
    if call.argv[1:] == ("--version",):
        return Result(out=f"{third_party.version_only(mac, call, '--version')}\n")
    found = options(mac, call)
    if mac.forge is not None and (refusal := mac.forge(found)):
        return Result(1, err=f"{refusal}\n")
    return record(mac, call, found)


def options(mac: Mac, call: Call) -> dict[str, str]:
    """Return the options of a registration; Exit if the runner cannot be registered with them."""
    if call.is_root:
        raise Exit(Result(1, err="Must not run with sudo\n"))
    found = _options(call)
    if "unattended" not in found or found.get("work") != "_work":
        raise NotModelled
    for name in ("url", "token"):
        if not found.get(name):
            text = f"Invalid configuration provided for {name}. Terminating unattended configuration.\n"
            raise Exit(Result(1, err=text))
    if mac.files.is_file(f"{host.ACTIONS_RUNNER}/.runner"):
        raise Exit(Result(1, err=_CONFIGURED))
    return found


def record(
    mac: Mac, call: Call, options: dict[str, str], registered: Registered | None = None
) -> Result:
    """Write the files of a registration, and record it."""
    _write(mac, call, options, registered)
    shown = {name: value for name, value in options.items() if name != "token"}
    digest = hashlib.sha256(options["token"].encode()).hexdigest()
    with mac.change() as state:
        count = state.get("actions_runner", {}).get("registrations_count", 0) + 1
        state["actions_runner"] = {
            "options": shown,
            "token_sha256": digest,
            "registrations_count": count,
        }
    return Result(out="Connected to GitHub\nRunner successfully added\n")


def _options(call: Call) -> dict[str, str]:
    named = {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in call.environment.items()
        if name.startswith(_PREFIX)
    }
    try:
        parsed, rest = getopt.getopt(
            list(call.argv[1:]), "", [*(f"{name}=" for name in _VALUES), "unattended", "replace"]
        )
    except getopt.GetoptError as error:
        raise NotModelled(str(error)) from error
    if rest:
        raise NotModelled(rest[0])
    return named | {name.removeprefix("--"): value for name, value in parsed}


def _write(mac: Mac, call: Call, options: dict[str, str], registered: Registered | None) -> None:
    credentials: dict[str, Any] = {"scheme": "OAuth"}
    if registered:
        data = {"authorizationUrl": registered.url, "clientId": registered.configuration}
        credentials["data"] = data
    registration = {
        "agentId": registered.runner_id if registered else 1,
        "agentName": options.get("name", "mac"),
        "poolId": 1,
        "poolName": options.get("runnergroup", "Default"),
        "serverUrl": "https://pipelines.actions.githubusercontent.com/simulated/",
        "gitHubUrl": options["url"],
        "workFolder": options["work"],
    }
    files = {
        ".path": b"/usr/bin:/bin\n",
        ".credentials": codecs.BOM_UTF8 + json.dumps(credentials).encode(),
        ".credentials_rsaparams": b"{}",
        ".runner": codecs.BOM_UTF8 + json.dumps(registration, indent=2).encode(),
    }
    for name, content in files.items():
        owner = f"{call.user}:staff"
        mac.files.write(f"{host.ACTIONS_RUNNER}/{name}", content, mode=0o644, owner=owner)
