"""The settings of the process of `bramley up` from its flags; errors name the flag."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from bramley.api.names import machines
from bramley.app import own_macs
from bramley.app.machine_artifacts import ArtifactSettings, Program
from bramley.app.own_macs import OwnMac
from bramley.app.ssh_options import read_key
from bramley.app.up import MacSettings, Settings
from bramley.base.errors import BadConfiguration
from bramley.cli.apiserver import effective
from bramley.cli.host_connection import password
from bramley.cli.options import MACS

if TYPE_CHECKING:
    from bramley.cli.up import Flags
    from bramley.cli.up_flags import OwnMacFlags

_FOLDER = "macs"
_GUIDE = "docs/how-to/add-your-own-mac.md"


def settings(given: Flags) -> Settings:
    """Return the settings; nothing is created yet."""
    server = given.server
    api = effective(server.data_dir, server.listen, server.kubeconfig_out, server.audit_log)
    simulated, own = given.simulated, given.own
    count = simulated.macs if simulated.macs is not None else (0 if own.mac else MACS)
    if simulated.bootstrap:
        controllers = dataclasses.replace(api.controllers, cluster_api=True)
        api = dataclasses.replace(api, controllers=controllers)
    plain = MacSettings(api.data_dir / _FOLDER, 0 if simulated.bootstrap else count)
    rented = count if simulated.bootstrap else None
    if not own.mac:
        return Settings(api, plain, rented=rented)
    if simulated.bootstrap:
        raise BadConfiguration(
            "--mac and --bootstrap need different archives of Tart; start each with its own --data-dir"
        )
    macs = tuple(OwnMac.parse(target, user=machines.DEFAULT_SSH_USER) for target in own.mac)
    own_macs.require_reachable(macs, api.listen)
    artifacts = _artifacts(own)
    return Settings(api, plain, own=tuple(_with_login(*each, own) for each in zip(macs, own.mac, strict=True)), artifacts=artifacts)  # fmt: skip


def _artifacts(own: OwnMacFlags) -> ArtifactSettings:
    agent, interpreter = own.tartkubelet_archive_path, own.tartkubelet_interpreter_path
    tart = own.tart_tarball_path
    if agent is None or interpreter is None or tart is None:
        given = {
            "--tart-tarball-path": tart,
            "--tartkubelet-archive-path": agent,
            "--tartkubelet-interpreter-path": interpreter,
        }
        missing = ", ".join(flag for flag, path in given.items() if path is None)
        raise BadConfiguration(f"--mac needs {missing}; {_GUIDE} shows where to get the files")
    return ArtifactSettings(
        agent=agent, interpreter=interpreter, tart=Program(tart, own.tart_version)
    )


def _with_login(mac: OwnMac, target: str, own: OwnMacFlags) -> OwnMac:
    return dataclasses.replace(
        mac,
        password=password(own.password_file, ask=own.ask_password, target=target),
        private_key=read_key(own.identity) if own.identity else None,
    )
