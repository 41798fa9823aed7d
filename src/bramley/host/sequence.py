"""All steps of one Mac, in order: what later ones need, earlier ones have made.

Whatever is unusable is refused here, before the first connection. What a specification leaves out has no step here; what was brought
once and is left out now is taken away by `retiring`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.host.spec import MacSpec
from bramley.host.step import Step
from bramley.host.steps.agent import Agent
from bramley.host.steps.agent_job import Job
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.client_authority import ClientAuthority
from bramley.host.steps.firewall import Firewall
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.interpreter import Interpreter
from bramley.host.steps.kubeconfig import Kubeconfig
from bramley.host.steps.local_network import LocalNetwork
from bramley.host.steps.log_rotation import LogRotation
from bramley.host.steps.node_exporter import NodeExporter
from bramley.host.steps.preconditions import Preconditions
from bramley.host.steps.sleep import Sleep
from bramley.host.steps.ssh_keys import SshKeys
from bramley.host.steps.sudo import Sudo
from bramley.host.steps.tailnet_resolver import TailnetResolver
from bramley.host.steps.tailscale import Tailscale
from bramley.host.steps.tart import Tart
from bramley.host.steps.updates import Updates
from bramley.host.steps.verification import Verification

# The names of all that there may be, in order.
NAMES = (
    Preconditions.name,
    Sudo.name,
    SshKeys.name,
    Hostname.name,
    Sleep.name,
    Updates.name,
    AutoLogin.name,
    Firewall.name,
    Tart.name,
    Tailscale.name,
    TailnetResolver.name,
    LocalNetwork.name,
    NodeExporter.name,
    LogRotation.name,
    Kubeconfig.name,
    ClientAuthority.name,
    Interpreter.name,
    Agent.name,
    Job.name,
    Verification.name,
)


def steps(spec: MacSpec, *, clock: Clock | None = None) -> list[Step]:
    """Return the steps that make a Mac what is specified; `clock` is what the Mac's is compared with."""
    if spec.node_exporter and not _is_on_tailnet(spec):
        raise BadConfiguration(
            "node_exporter serves on the tailnet only, and this Mac is in none; leave it out, or join one"
        )
    return [*_ground(spec, clock or SystemClock()), *_network(spec), *_agent(spec)]


def _ground(spec: MacSpec, clock: Clock) -> Iterator[Step]:
    yield Preconditions(spec.user, clock=clock)
    yield Sudo(spec.user, spec.password)
    yield SshKeys(spec.user, spec.public_keys)
    yield Hostname(spec.job.node_name)
    yield Sleep()
    yield Updates()
    yield AutoLogin(spec.user, spec.password)
    yield Firewall(spec.egress)
    if spec.tart:
        yield Tart(spec.tart, replace=spec.replace_tart)


def _network(spec: MacSpec) -> Iterator[Step]:
    if spec.tailnet:
        yield Tailscale(spec.tailnet, spec.job.node_name)
    if _is_on_tailnet(spec):
        yield TailnetResolver()
    yield LocalNetwork(spec.user)
    if spec.node_exporter:
        yield NodeExporter(spec.node_exporter)
    yield LogRotation()


def _agent(spec: MacSpec) -> Iterator[Step]:
    if spec.kubeconfig:
        yield Kubeconfig(spec.kubeconfig, spec.job.node_name, spec.user)
    if spec.client_authority:
        yield ClientAuthority(spec.client_authority, spec.user)
    if spec.interpreter:
        yield Interpreter(spec.interpreter)
    if spec.agent:
        yield Agent(spec.agent, spec.interpreter.version if spec.interpreter else "")
        yield Job(spec.agent_job)
        yield Verification(spec.agent_job)


def _is_on_tailnet(spec: MacSpec) -> bool:
    return spec.tailnet is not None or spec.job.on_tailnet
