"""The builder's part of a Mac as the existing provider has set it up: tools, environment, and a registered runner without our note."""

from __future__ import annotations

import plistlib

from bramley.api.names import host, launchd
from bramley.base.secret import Secret
from bramley.host.commands import Run
from bramley.sim.macos import stand_ins
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.records import USER

RUNNER_VERSION = "2.300.0"
_UID = 501
_FILES = {"config.sh": 0o755, "bin/runsvc.sh": 0o755, "runsvc.sh": 0o755}


async def install(
    mac: Mac, connection: ModelConnection, *, name: str, organisation: str, token: Secret
) -> None:
    """Install the tools, and register and load the runner, as its bootstrap does after the agent."""
    for argv in (("tap", "hashicorp/tap"), ("install", "hashicorp/tap/packer"), ("pin", "packer")):
        await _run(connection, host.HOMEBREW, *argv, as_root=False)
    await _run(connection, host.HOMEBREW, "install", "crane", as_root=False)
    await _run(connection, "xcode-select", "-s", host.XCODE)
    await _run(connection, "xcodebuild", "-license", "accept")
    owner = f"{USER}:staff"
    mac.files.make_folder(host.BUILD_CACHE, owner=owner)
    line = f"export {host.BUILD_CACHE_VARIABLE}={host.BUILD_CACHE}\n"
    mac.files.write(host.ZSHENV, line.encode())
    for folder in (host.ACTIONS_RUNNER, f"{host.ACTIONS_RUNNER}/bin", host.launch_agents(USER)):
        mac.files.make_folder(folder, owner=owner)
    for path, mode in _FILES.items():
        program = stand_ins.program(path.rpartition("/")[2], RUNNER_VERSION)
        mac.files.write(f"{host.ACTIONS_RUNNER}/{path}", program, mode=mode, owner=owner)
    await _register(connection, name, organisation, token)
    label = launchd.actions_runner(organisation, name)
    path = f"{host.launch_agents(USER)}/{label}.plist"
    job = {
        "Label": label,
        "ProgramArguments": [f"{host.ACTIONS_RUNNER}/runsvc.sh"],
        "UserName": USER,
        "WorkingDirectory": host.ACTIONS_RUNNER,
        "RunAtLoad": True,
        "SessionCreate": True,
    }
    mac.files.write(path, plistlib.dumps(job), owner=owner)
    await _run(connection, "launchctl", "bootstrap", launchd.gui(_UID), path)


async def _register(
    connection: ModelConnection, name: str, organisation: str, token: Secret
) -> None:
    await connection.execute(
        Run(
            argv=(
                f"{host.ACTIONS_RUNNER}/config.sh",
                *("--url", f"https://github.com/{organisation}", "--name", name),
                *("--labels", "vm-image-builder", "--work", "_work", "--unattended", "--replace"),
            ),
            purpose="register the runner",
            stdin=token,
            stdin_variable=host.ACTIONS_RUNNER_TOKEN_VARIABLE,
        )
    )


async def _run(connection: ModelConnection, *argv: str, as_root: bool = True) -> None:
    await connection.execute(Run(argv=argv, purpose="set the builder up", as_root=as_root))
