"""config.sh of a simulated GitHub Actions runner: registers at the forge of the Mac, or without one, and records how it was called.

As with the real one, each option may come from a variable `ACTIONS_RUNNER_INPUT_…`, nothing is read from a pipe, and an existing
registration is refused. The token is recorded as a digest.
"""

from __future__ import annotations

import codecs
import getopt
import hashlib
import json

from bramley.api.names import host
from bramley.sim.macos.call import Call, NotModelled, Result
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import third_party

_VALUES = ("url", "token", "name", "labels", "runnergroup", "work")
_PREFIX = "ACTIONS_RUNNER_INPUT_"
_CONFIGURED = "Cannot configure the runner because it is already configured.\n"


def config_sh(mac: Mac, call: Call) -> Result:
    """Print the version, or register a runner below its folder."""
    if call.argv[1:] == ("--version",):
        return Result(out=f"{third_party.version_only(mac, call, '--version')}\n")
    if call.is_root:
        return Result(1, err="Must not run with sudo\n")
    options = _options(call)
    if "unattended" not in options or options.get("work") != "_work":
        raise NotModelled
    for name in ("url", "token"):
        if not options.get(name):
            return Result(
                1,
                err=f"Invalid configuration provided for {name}. Terminating unattended configuration.\n",
            )
    if mac.files.is_file(f"{host.ACTIONS_RUNNER}/.runner"):
        return Result(1, err=_CONFIGURED)
    if mac.forge is not None and (refusal := mac.forge(options)):
        return Result(1, err=f"{refusal}\n")
    _write(mac, call, options)
    with mac.change() as state:
        digest = hashlib.sha256(options.pop("token").encode()).hexdigest()
        count = state.get("actions_runner", {}).get("registrations_count", 0) + 1
        state["actions_runner"] = {
            "options": options,
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


def _write(mac: Mac, call: Call, options: dict[str, str]) -> None:
    registration = {
        "agentId": 1,
        "agentName": options.get("name", "mac"),
        "poolId": 1,
        "poolName": options.get("runnergroup", "Default"),
        "serverUrl": "https://pipelines.actions.githubusercontent.com/simulated/",
        "gitHubUrl": options["url"],
        "workFolder": options["work"],
    }
    files = {
        ".path": b"/usr/bin:/bin\n",
        ".credentials": codecs.BOM_UTF8 + b'{"scheme": "OAuth"}',
        ".credentials_rsaparams": b"{}",
        ".runner": codecs.BOM_UTF8 + json.dumps(registration, indent=2).encode(),
    }
    for name, content in files.items():
        owner = f"{call.user}:staff"
        mac.files.write(f"{host.ACTIONS_RUNNER}/{name}", content, mode=0o644, owner=owner)
