"""`bramley machines`: run the controllers of Macs, with the flags of existing deployments."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import NamedTuple

import typer

from bramley.cli.flag_groups import grouped
from bramley.cli.machine_flags import AgentFlags, FileFlags, HostFlags, ProcessFlags
from bramley.cli.machine_provider_flags import NetworkFlags, OldFlags, ProviderFlags
from bramley.cli.options import show

_UNSET: tuple[object, ...] = (None, "", [])


class Flags(NamedTuple):
    """All flags by group."""

    process: ProcessFlags
    agents: AgentFlags
    files: FileFlags
    hosts: HostFlags
    networks: NetworkFlags
    provider: ProviderFlags
    old: OldFlags


@grouped(Flags)
def machines(call: typer.Context, given: Flags) -> None:
    """Run the controllers of Macs: they turn rented Macs, and those that a team owns, into Nodes, and keep them up to date.

    The cluster needs the CustomResourceDefinitions, and the controllers the permissions in examples/machines-rbac.yaml.
    Durations are written as in Go: 30s, 5m, 1h30m. SIGTERM stops the process; Macs and their jobs continue.

    \b
    Examples:
      bramley machines --kubeconfig ./kubeconfig --tartkubelet-archive-path agent.tar.gz \\
        --tartkubelet-interpreter-path interpreter.tar.gz --tart-tarball-path tart.tar.gz
      bramley machines --scaleway-credentials-dir /var/run/scaleway --default-adopt-pool-prefix tuist-pool-
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.cli import machine_settings

    settings = machine_settings.settings(given)
    if given.process.show_settings:
        show(call, _shown(given))
        return
    from bramley.app import machines as provider
    from bramley.base import log

    log.configure(level=given.process.log_level, form=given.process.log_format)
    logger = log.get(__name__)
    for flag in machine_settings.without_effect(given.old):
        logger.warning("Flag has no effect", flag=flag)
    asyncio.run(
        provider.run(settings, on_leading=lambda: logger.info("Started controllers of Macs"))
    )


def _shown(given: Flags) -> dict[str, object]:
    values = {
        each.name: getattr(group, each.name)
        for group in given
        for each in dataclasses.fields(group)
    }
    del values["show_settings"]
    return {name: "none" if value in _UNSET else value for name, value in values.items()}
