"""All steps of one Mac, in order: each step may rely on the earlier ones.

Invalid specifications are refused here, before the first connection. A part that the specification leaves out has no step; if it was
applied earlier, `retired_part_steps` removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from bramley.api.names import host
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.host import drift, removal
from bramley.host.commands import Command, Probe
from bramley.host.drift import Part
from bramley.host.facts import Facts
from bramley.host.spec import Builder, MacSpec
from bramley.host.step import FollowUpProbes, Step
from bramley.host.steps.actions_runner import ActionsRunner
from bramley.host.steps.agent import Agent
from bramley.host.steps.agent_job import Job
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.build_environment import BuildEnvironment
from bramley.host.steps.builder_tools import BuilderTools
from bramley.host.steps.client_authority import ClientAuthority
from bramley.host.steps.dhcp_leases import DEFAULT_SECONDS, DhcpLeases
from bramley.host.steps.firewall import Firewall
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.interpreter import Interpreter
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.log_rotation import LogRotation
from bramley.host.steps.node_exporter import NodeExporter
from bramley.host.steps.preconditions import Preconditions
from bramley.host.steps.registry_credentials import RegistryCredentials
from bramley.host.steps.sleep import Sleep
from bramley.host.steps.ssh_keys import SshKeys
from bramley.host.steps.sudo import Sudo
from bramley.host.steps.tailnet_resolver import TailnetResolver
from bramley.host.steps.tailscale import Tailscale
from bramley.host.steps.tart import Tart
from bramley.host.steps.updates import Updates
from bramley.host.steps.verification import Verification
from bramley.host.steps.xcode import Xcode

# The names of all steps, in order.
NAMES = (
    Preconditions.name,
    Sudo.name,
    SshKeys.name,
    Hostname.name,
    Sleep.name,
    Updates.name,
    AutoLogin.name,
    Firewall.name,
    DhcpLeases.name,
    Tart.name,
    Tailscale.name,
    TailnetResolver.name,
    LocalNetwork.name,
    NodeExporter.name,
    LogRotation.name,
    Kubeconfig.name,
    ClientAuthority.name,
    RegistryCredentials.name,
    Interpreter.name,
    Agent.name,
    Job.name,
    Xcode.name,
    BuilderTools.name,
    BuildEnvironment.name,
    ActionsRunner.name,
    Verification.name,
)
# The files that only these steps write, and that flags of the agent name.
_AGENT_FILES = {
    ClientAuthority.name: host.CLIENT_AUTHORITY,
    RegistryCredentials.name: host.REGISTRY_CREDENTIALS,
}


def steps(spec: MacSpec, *, clock: Clock | None = None) -> list[Step]:
    """Return the steps that converge a Mac to its specification; `clock` is compared with the Mac's clock."""
    if spec.node_exporter and not _is_on_tailnet(spec):
        raise BadConfiguration(
            "node_exporter serves on the tailnet only, and this Mac is in none; leave it out, or configure a tailnet"
        )
    return [*_base_steps(spec, clock or SystemClock()), *_network_steps(spec), *_agent_steps(spec)]


def _base_steps(spec: MacSpec, clock: Clock) -> Iterator[Step]:
    yield Preconditions(spec.user, clock=clock)
    # Before all steps that run commands as root.
    yield Sudo(spec.user, spec.password)
    yield SshKeys(spec.user, spec.public_keys)
    yield Hostname(spec.job.node_name)
    yield Sleep()
    yield Updates()
    yield AutoLogin(spec.user, spec.password)
    yield Firewall(spec.egress)
    # Before anything can start a VM: a lease that was already granted keeps its time.
    yield DhcpLeases(spec.dhcp_lease_seconds or DEFAULT_SECONDS)
    if spec.tart:
        yield Tart(spec.tart, replace=spec.replace_tart, is_builder=spec.builder is not None)


def _network_steps(spec: MacSpec) -> Iterator[Step]:
    if spec.tailnet:
        yield Tailscale(spec.tailnet, spec.job.node_name)
    if _is_on_tailnet(spec):
        yield TailnetResolver()
    yield LocalNetwork(spec.user)
    if spec.node_exporter:
        yield NodeExporter(spec.node_exporter)
    yield LogRotation()


def _agent_steps(spec: MacSpec) -> Iterator[Step]:
    if spec.kubeconfig:
        yield Kubeconfig(spec.kubeconfig, spec.job.node_name, spec.user)
    if spec.client_authority:
        yield ClientAuthority(spec.client_authority, spec.user)
    if spec.registry_credentials:
        yield RegistryCredentials(spec.registry_credentials, spec.user)
    if spec.interpreter:
        # Before the code, whose check runs it with this interpreter.
        yield Interpreter(spec.interpreter)
    if spec.agent:
        yield Agent(spec.agent, spec.interpreter.version if spec.interpreter else "")
        # After all files that the agent is started with: the steps before only note that a restart is due.
        yield Job(spec.agent_job)
    if spec.builder:
        # After the agent's job: an agent without the flag of builders deletes the VMs of the first bake.
        yield from _builder_steps(spec.builder, spec)
    if spec.agent:
        yield Verification(spec.agent_job)


def _builder_steps(builder: Builder, spec: MacSpec) -> Iterator[Step]:
    # Before Homebrew, which uses git of Xcode.
    yield Xcode()
    yield BuilderTools()
    yield BuildEnvironment(spec.user)
    yield ActionsRunner(builder, spec.job.node_name, spec.user)


def _is_on_tailnet(spec: MacSpec) -> bool:
    return spec.tailnet is not None or spec.job.on_tailnet


@dataclass(frozen=True, slots=True)
class RetiredPartRemoval(Step):
    """Remove one part that is no longer desired, and its stamp."""

    part: Part
    removal_step: Step

    @property
    def name(self) -> str:
        """Return a name that no other step has."""
        return f"without-{self.removal_step.name}"

    @property
    def title(self) -> str:
        """Return what is removed."""
        return f"remove {self.removal_step.title}"

    def probes(self) -> list[Probe]:
        """Probe what would be removed, and the stamps."""
        return [drift.STAMPS_FILE, *self.removal_step.probes()]

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Return the probes that depend on the first results."""
        step = self.removal_step
        return step.follow_up_probes(facts) if isinstance(step, FollowUpProbes) else ()

    def check_supported(self, facts: Facts) -> None:
        """Refuse a removal that would interrupt work."""
        self.removal_step.check_supported(facts)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Remove the part, and its stamp last: while the stamp exists, the next plan detects an interruption."""
        yield from self.removal_step.plan(facts)
        stamps = drift.read_stamps(facts)
        if self.part in stamps:
            yield from drift.write_stamps(drift.without_part(stamps, self.part))


def retired_part_steps(
    steps: Sequence[Step], stamps: drift.Stamps, *, skip: Collection[str] = ()
) -> list[Step]:
    """Return the steps that remove parts which were applied and which none of these steps desires; without a stamp nothing is removed."""
    desired = [part for step in steps if (part := step.desired())]
    updates_job = Job.name not in skip and any(isinstance(step, Job) for step in steps)
    # The agent does not start without a file that its flags name, so its job must have been updated before.
    kept = () if updates_job else (Part.REGISTRY_CREDENTIALS,)
    retired = [part for part in drift.retired_parts(desired, stamps) if part not in kept]
    removals = [(part, removal.of_part(part)) for part in retired]
    return [
        RetiredPartRemoval(part, step) for part, step in removals if step and step.name not in skip
    ]


def select(
    steps: Sequence[Step],
    *,
    only: Collection[str],
    skip: Collection[str],
    names: Sequence[str] = NAMES,
) -> list[Step]:
    """Return the steps selected by --only and --skip; unknown names are refused. The verification does not require what is skipped."""
    unknown = sorted({*only, *skip} - {*names})
    if unknown:
        raise BadConfiguration(
            f"unknown step {', '.join(unknown)}; the steps are {', '.join(names)}"
        )
    selected = [
        replace(step, skipped=frozenset(skip)) if isinstance(step, Verification) else step
        for step in steps
        if (not only or step.name in only) and step.name not in skip
    ]
    return [
        _without_files(step, steps, selected, skip) if isinstance(step, Job) else step
        for step in selected
    ]


def _without_files(
    job: Job, steps: Sequence[Step], selected: Sequence[Step], skip: Collection[str]
) -> Job:
    """Return the step with the files that this run does not write."""
    names = {step.name for step in steps} - {step.name for step in selected}
    files = {path: name for name, path in _AGENT_FILES.items() if name in names}
    return replace(
        job,
        unselected_files={path: name for path, name in files.items() if name not in skip},
        skipped_files=frozenset(path for path, name in files.items() if name in skip),
    )
