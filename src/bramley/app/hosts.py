"""The operations of `bramley host` on one Mac over SSH: read facts, plan, apply, prepare and remove."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from bramley.app import agent_access, config_files, host_config
from bramley.app.ssh_options import SshOptions, parse_target
from bramley.base.clock import SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import converge, preparation, removal, report, sequence, ssh
from bramley.host.artifacts import ArtifactStore, BandwidthLimit
from bramley.host.claim import Claim
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.progress import OnProgress, Plan, Report
from bramley.host.report import Overview
from bramley.host.spec import MacSpec
from bramley.host.step import Step
from bramley.host.steps import kubeconfig

_RUN_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The configuration to apply to a Mac, and the selected steps."""

    config: Path
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    replace_tart: bool = False
    # Leave what needs a reboot pending.
    no_reboot: bool = False
    # Where an identity for the agent is created if the configuration names no kubeconfig.
    cluster: agent_access.Cluster | None = None
    server: str | None = None
    expires: timedelta = timedelta(hours=24)
    # The bandwidth limit of artifacts; 0: no limit.
    megabytes_per_second: int = 0

    def selects(self, step: str) -> bool:
        """Return whether a step is selected."""
        return (not self.only or step in self.only) and step not in self.skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationOptions:
    """The user's password, and the selected steps of a preparation."""

    password: Secret
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def steps(self, user: str) -> list[Step]:
        """Return the selected steps."""
        steps = preparation.steps(user, self.password)
        names = preparation.NAMES
        return _not_empty(
            sequence.select(steps, only=self.only, skip=self.skip, names=names), steps
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOptions:
    """What to remove from a Mac."""

    keep_tart: bool = True
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def steps(self, user: str) -> list[Step]:
        """Return the selected removal steps."""
        names = [step.name for step in removal.steps(user, keep_tart=False)]
        steps = removal.steps(user, keep_tart=self.keep_tart)
        return _not_empty(
            sequence.select(steps, only=self.only, skip=self.skip, names=names), steps
        )


async def facts(ssh_options: SshOptions) -> Overview:
    """Return an overview of a Mac."""
    async with _connected(ssh_options, ArtifactStore()) as mac:
        return await report.read_overview(mac, ssh_options.login_user)


async def plan(ssh_options: SshOptions, options: ApplyOptions) -> Plan:
    """Return what is missing on a Mac; neither the Mac nor a cluster is changed."""
    artifacts, ssh_options = artifact_store(options), _as_configured_user(ssh_options, options)
    steps = sequence.steps(await _spec(ssh_options, options, artifacts))
    _require_selection(ssh_options, options, steps)
    async with _connected(ssh_options, artifacts) as mac:
        return await plan_steps(mac, steps, options)


async def plan_steps(mac: Connection, steps: Sequence[Step], options: ApplyOptions) -> Plan:
    """Return what the selected steps would do, and which retired parts would be removed."""
    return await converge.plan(
        mac,
        _selected(steps, options),
        later_steps=_retired(steps, options),
        no_reboot=options.no_reboot,
    )


async def apply(ssh_options: SshOptions, options: ApplyOptions, on_progress: OnProgress) -> Report:
    """Converge a Mac to its configuration."""
    artifacts, ssh_options = artifact_store(options), _as_configured_user(ssh_options, options)
    spec = await _spec(ssh_options, options, artifacts)
    creates_identity = _creates_identity(ssh_options, spec, options)
    # With a new identity the step of the kubeconfig is added only after the Mac was checked.
    if not creates_identity:
        _require_selection(ssh_options, options, sequence.steps(spec))
    async with _connected(ssh_options, artifacts) as mac:
        facts = None
        if creates_identity:
            spec, facts = await with_identity(mac, spec, options)
        return await apply_steps(mac, sequence.steps(spec), options, on_progress, facts=facts)


async def check_steps(mac: Connection, spec: MacSpec, options: ApplyOptions) -> Facts:
    """Refuse an unsupported Mac; return the facts, including those for a kubeconfig that is still to be created."""
    steps = _selected(sequence.steps(spec), options)
    return await converge.check_all(mac, steps, also=kubeconfig.PROBES)


async def with_identity(
    mac: Connection, spec: MacSpec, options: ApplyOptions
) -> tuple[MacSpec, Facts]:
    """Return the specification with a new identity of the agent, and the facts."""
    # Check first: an invalid file, an unreachable or unsupported Mac must not leave an identity in the cluster.
    facts = await check_steps(mac, spec, options)
    if options.cluster is None:
        return spec, facts
    issued = await agent_access.create(
        options.cluster, spec.job.node_name, expires=options.expires, server=options.server
    )
    return replace(spec, kubeconfig=issued.kubeconfig), facts


async def apply_steps(
    mac: Connection,
    steps: Sequence[Step],
    options: ApplyOptions,
    on_progress: OnProgress = lambda _: None,
    *,
    facts: Facts | None = None,
) -> Report:
    """Apply the selected steps, and then remove retired parts."""
    # Retired parts are removed last: the agent no longer uses them then, and an unsupported Mac keeps them.
    return await converge.apply(
        mac,
        _selected(steps, options),
        on_progress=on_progress,
        claim=claim(),
        later_steps=_retired(steps, options),
        facts=facts,
        no_reboot=options.no_reboot,
    )


async def plan_preparation(ssh_options: SshOptions, options: PreparationOptions) -> Plan:
    """Return what would be prepared; the password is not tried, because wrong attempts count."""
    steps = options.steps(ssh_options.login_user)
    async with _connected(_with_password(ssh_options, options), ArtifactStore()) as mac:
        return await converge.plan(mac, steps)


async def prepare(
    ssh_options: SshOptions, options: PreparationOptions, on_progress: OnProgress
) -> Report:
    """Set up what needs the user's password: passwordless sudo, and automatic login."""
    user = ssh_options.login_user
    steps = options.steps(user)
    async with _connected(_with_password(ssh_options, options), ArtifactStore()) as mac:
        return await preparation.prepare(
            mac, user, options.password, selected=steps, on_progress=on_progress, claim=claim()
        )


async def plan_removal(ssh_options: SshOptions, options: RemovalOptions) -> Plan:
    """Return what would be removed."""
    steps = options.steps(ssh_options.login_user)
    async with _connected(ssh_options, ArtifactStore()) as mac:
        return await converge.plan(mac, steps)


async def remove(
    ssh_options: SshOptions, options: RemovalOptions, on_progress: OnProgress
) -> Report:
    """Remove Bramley from a Mac; foreign files stay."""
    steps = options.steps(ssh_options.login_user)
    async with _connected(ssh_options, ArtifactStore()) as mac:
        return await converge.apply(mac, steps, on_progress=on_progress, claim=claim())


def claim() -> Claim:
    """Return a claim of this process, for one run on a Mac."""
    return Claim(
        run=secrets.token_hex(_RUN_BYTES), by=f"process {os.getpid()} on {socket.gethostname()}"
    )


def artifact_store(options: ApplyOptions) -> ArtifactStore:
    """Return a store of artifacts with the bandwidth limit of the options."""
    rate = options.megabytes_per_second * 1_000_000
    return ArtifactStore(limit=BandwidthLimit(rate) if rate else None)


def _as_configured_user(ssh_options: SshOptions, options: ApplyOptions) -> SshOptions:
    """Return the options with the user of the configuration as the default."""
    return replace(ssh_options, user=host_config.read(options.config).user)


def _with_password(ssh_options: SshOptions, options: PreparationOptions) -> SshOptions:
    return replace(ssh_options, password=ssh_options.password or options.password)


def _creates_identity(ssh_options: SshOptions, spec: MacSpec, options: ApplyOptions) -> bool:
    """Return whether an identity is created in a cluster; checks all options before the first connection."""
    is_selected = options.selects(kubeconfig.Kubeconfig.name)
    if spec.kubeconfig or not is_selected or options.cluster is None:
        return False
    ssh_options.build_target()
    agent_access.require(options.cluster, options.server)
    return True


def _require_selection(
    ssh_options: SshOptions, options: ApplyOptions, steps: Sequence[Step]
) -> None:
    if not _selected(steps, options):
        raise BadConfiguration(
            f"{ssh_options.target}: --only and --skip select none of the steps of {options.config}: "
            f"{', '.join(step.name for step in steps)}"
        )


def _not_empty(selected: list[Step], steps: Sequence[Step]) -> list[Step]:
    """Refuse an empty selection, which would succeed without doing anything."""
    if not selected:
        names = ", ".join(step.name for step in steps)
        raise BadConfiguration(f"--only and --skip select none of the steps {names}")
    return selected


def _selected(steps: Sequence[Step], options: ApplyOptions) -> list[Step]:
    return sequence.select(steps, only=options.only, skip=options.skip)


def _retired(steps: Sequence[Step], options: ApplyOptions) -> converge.LaterSteps:
    """Return the function that finds retired parts; with --only there are none."""
    return lambda stamps: (
        [] if options.only else sequence.retired_part_steps(steps, stamps, skip=options.skip)
    )


async def _spec(
    ssh_options: SshOptions, options: ApplyOptions, artifacts: ArtifactStore
) -> MacSpec:
    # Unknown names in --only and --skip are refused before any file is read.
    sequence.select([], only=options.only, skip=options.skip)
    config, folder = host_config.read(options.config), options.config.parent
    user, _, _ = parse_target(ssh_options.target, user=config.user)
    if user != config.user:
        raise BadConfiguration(
            f"{options.config} is for the user {config.user}, but the target is {ssh_options.target}; change user in the file"
        )
    with host_config.config_errors(options.config):
        spec = await host_config.spec(
            config,
            folder,
            artifacts,
            password=ssh_options.password,
            replace_tart=options.replace_tart,
        )
        if config.kubeconfig_file:
            path = folder / config.kubeconfig_file
            content = config_files.secret(path, field="kubeconfigFile", holds="a kubeconfig")
            spec = replace(spec, kubeconfig=content)
        # Building the steps validates their arguments, too.
        sequence.steps(spec)
    return spec


@asynccontextmanager
async def _connected(
    ssh_options: SshOptions, artifacts: ArtifactStore
) -> AsyncIterator[ssh.SshConnection]:
    async with ssh.open(
        ssh_options.build_target(),
        clock=SystemClock(),
        artifacts=artifacts,
        connect_timeout=ssh_options.connect_timeout,
    ) as mac:
        yield mac
