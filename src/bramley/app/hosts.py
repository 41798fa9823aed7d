"""The processes of `bramley host`: one Mac by hand, over SSH: looked at, planned, made as wanted, prepared and left again."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from bramley.app import agent_access, host_config
from bramley.app.host_choices import Leaving, Preparation, chosen
from bramley.app.host_config_errors import naming, telling
from bramley.base.clock import SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import ensuring, grammar, overview, preparing, retiring, sequence, ssh
from bramley.host.artifacts import Budget, Depot
from bramley.host.claiming import Claim
from bramley.host.connection import Connection
from bramley.host.ensuring import Plan, Progress, Report
from bramley.host.facts import Facts
from bramley.host.overview import Overview
from bramley.host.spec import MacSpec
from bramley.host.step import Step
from bramley.host.steps import kubeconfig

_TARGET = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:@\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)
_LAST_PORT = 65535
_LONGEST_KEY = 64 * 1024
_RUN_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a Mac is reached by hand."""

    # As in user@host:port.
    target: str
    user: str
    known_hosts: Path
    identities: tuple[Path, ...] = ()
    agent: str = ""
    # Whether somebody named these keys, or they are only those that lie where everybody's do.
    are_chosen: bool = True
    password: Secret | None = None
    jump: str = ""
    # Forget the pinned key when the Mac shows one: it was reinstalled.
    trust_again: bool = False
    patience: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a Mac is to become, and which of the steps are meant."""

    config: Path
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    replace_tart: bool = False
    # Where an agent's identity is made, for a configuration that names no kubeconfig.
    cluster: agent_access.Cluster | None = None
    server: str | None = None
    expires: timedelta = timedelta(hours=24)
    # The most that artifacts take of the line; 0: no limit.
    megabytes_per_second: int = 0

    def means(self, step: str) -> bool:
        """Tell whether a step is meant."""
        return (not self.only or step in self.only) and step not in self.skip


async def facts(way: Way) -> Overview:
    """Return what a Mac is like."""
    async with _connected(way, Depot()) as mac:
        return await overview.ask(mac, _user(way))


async def plan(way: Way, wish: Wish) -> Plan:
    """Return what is missing on a Mac; neither it nor a cluster is changed."""
    files, way = depot(wish), _as_its_user(way, wish)
    steps = await _steps(way, wish, files)
    async with _connected(way, files) as mac:
        return await planned(mac, steps, wish)


async def planned(mac: Connection, steps: Sequence[Step], wish: Wish) -> Plan:
    """Return what is missing, of those steps that are meant, and what is there and wanted no more."""
    return await ensuring.plan(mac, _meant(steps, wish), then=_retired(steps, wish))


async def apply(way: Way, wish: Wish, tell: Callable[[Progress], None]) -> Report:
    """Make a Mac as wanted."""
    files, way = depot(wish), _as_its_user(way, wish)
    spec = await _spec(way, wish, files)
    makes = _makes_identity(way, spec, wish)
    if not makes:
        _require_any(way, wish, sequence.steps(spec))
    async with _connected(way, files) as mac:
        seen = None
        if makes:
            spec, seen = await with_identity(mac, spec, wish)
        return await applied(mac, sequence.steps(spec), wish, tell, seen=seen)


async def required(mac: Connection, spec: MacSpec, wish: Wish) -> Facts:
    """Refuse what the Mac cannot become; return what was seen, with what a way to the cluster asks for that is yet to be made."""
    steps = _meant(sequence.steps(spec), wish)
    return await ensuring.require(mac, steps, also=kubeconfig.LOOKS)


async def with_identity(mac: Connection, spec: MacSpec, wish: Wish) -> tuple[MacSpec, Facts]:
    """Return the specification with an identity of the agent, made once nothing else can be refused, and what was seen before."""
    # What is wrong with the file, the way to the Mac or the Mac must not leave an identity in the cluster.
    seen = await required(mac, spec, wish)
    if wish.cluster is None:
        return spec, seen
    issued = await agent_access.create(
        wish.cluster, spec.job.node_name, expires=wish.expires, server=wish.server
    )
    return replace(spec, kubeconfig=issued.kubeconfig), seen


async def applied(
    mac: Connection,
    steps: Sequence[Step],
    wish: Wish,
    tell: Callable[[Progress], None] = lambda _: None,
    *,
    seen: Facts | None = None,
) -> Report:
    """Do what is missing, of those steps that are meant, and then take away what is wanted no more."""
    # Only then: the agent uses it no more, and a Mac that was refused has kept it.
    later = _retired(steps, wish)
    return await ensuring.apply(
        mac, _meant(steps, wish), tell=tell, claim=claim(), then=later, seen=seen
    )


async def preparation(way: Way, wanted: Preparation) -> Plan:
    """Return what would be prepared; the password is not tried, since wrong tries count."""
    steps = wanted.steps(_user(way))
    async with _connected(_with_password(way, wanted), Depot()) as mac:
        return await ensuring.plan(mac, steps)


async def prepare(way: Way, wanted: Preparation, tell: Callable[[Progress], None]) -> Report:
    """Do by hand what only the password's owner can do: sudo without password, and automatic login."""
    user = _user(way)
    steps = wanted.steps(user)
    async with _connected(_with_password(way, wanted), Depot()) as mac:
        return await preparing.prepare(
            mac, user, wanted.password, meant=steps, tell=tell, claim=claim()
        )


async def removal(way: Way, leaving: Leaving) -> Plan:
    """Return what would be taken away."""
    steps = leaving.steps(_user(way))
    async with _connected(way, Depot()) as mac:
        return await ensuring.plan(mac, steps)


async def remove(way: Way, leaving: Leaving, tell: Callable[[Progress], None]) -> Report:
    """Take away from a Mac what we brought; what is somebody else's stays."""
    steps = leaving.steps(_user(way))
    async with _connected(way, Depot()) as mac:
        return await ensuring.apply(mac, steps, tell=tell, claim=claim())


def parse_target(text: str, *, user: str, field: str = "TARGET") -> tuple[str, str, int]:
    """Return user, host and port of user@host:port."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise BadConfiguration(
            f"{field} {text[:80]!r} is not of the form user@host or user@host:port"
        )
    # A dot at the end says that a name is whole; with and without it there is one Mac, and one pin.
    host = found["host"].strip("[]").removesuffix(".")
    port = int(found["port"] or ssh.target.DEFAULT_PORT)
    who = found["user"] or user
    grammar.require(
        field,
        grammar.USER_NAME.check("user", who),
        grammar.host_name("host", host),
        grammar.count("port", port, most=_LAST_PORT),
    )
    return who, _plain(host), port


def _plain(host: str) -> str:
    """Return an address as everybody writes it, so that it has one pin."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def claim() -> Claim:
    """Return a claim of this process, for one run over a Mac."""
    return Claim(
        run=secrets.token_hex(_RUN_BYTES), by=f"process {os.getpid()} on {socket.gethostname()}"
    )


def _user(way: Way) -> str:
    return parse_target(way.target, user=way.user)[0]


def _as_its_user(way: Way, wish: Wish) -> Way:
    """Return the way of the user whom the configuration names, where the target names nobody."""
    return replace(way, user=host_config.read(wish.config).user)


def _with_password(way: Way, wanted: Preparation) -> Way:
    return replace(way, password=way.password or wanted.password)


def depot(wish: Wish) -> Depot:
    """Return what artifacts are read from, no faster than is wished."""
    rate = wish.megabytes_per_second * 1_000_000
    return Depot(budget=Budget(rate) if rate else None)


async def _steps(way: Way, wish: Wish, depot: Depot) -> list[Step]:
    """Return all steps of a configuration that was checked whole, as were the names of those that are meant."""
    steps = sequence.steps(await _spec(way, wish, depot))
    _require_any(way, wish, steps)
    return steps


def _makes_identity(way: Way, spec: MacSpec, wish: Wish) -> bool:
    """Tell whether a cluster is asked for an identity; all that can be checked is checked before anybody is spoken to."""
    if spec.kubeconfig or not wish.means(kubeconfig.Kubeconfig.name) or wish.cluster is None:
        return False
    _target(way)
    agent_access.require(wish.cluster, wish.server)
    return True


def _require_any(way: Way, wish: Wish, steps: Sequence[Step]) -> None:
    if not _meant(steps, wish):
        raise BadConfiguration(
            f"{way.target}: --only and --skip leave nothing of what {wish.config} asks for: "
            f"{', '.join(step.name for step in steps)}"
        )


def _meant(steps: Sequence[Step], wish: Wish) -> list[Step]:
    return chosen(steps, only=wish.only, skip=wish.skip)


def _retired(steps: Sequence[Step], wish: Wish) -> ensuring.Then:
    """Return what finds those parts that the Mac was given once, to be taken away; none, if only some steps are meant."""
    return lambda stamps: [] if wish.only else retiring.steps(steps, stamps, skip=wish.skip)


async def _spec(way: Way, wish: Wish, depot: Depot) -> MacSpec:
    chosen([], only=wish.only, skip=wish.skip)
    config, folder = host_config.read(wish.config), wish.config.parent
    user, _, _ = parse_target(way.target, user=config.user)
    if user != config.user:
        raise BadConfiguration(
            f"{wish.config} is for the user {config.user}, and {way.target} is another; set user there"
        )
    with telling(wish.config):
        spec = await host_config.spec(
            config, folder, depot, password=way.password, replace_tart=wish.replace_tart
        )
        if config.kubeconfig_file:
            path = folder / config.kubeconfig_file
            given = host_config.secret(path, field="kubeconfigFile", holds="a kubeconfig")
            spec = replace(spec, kubeconfig=given)
        # Steps check what they are given, too.
        sequence.steps(spec)
    return spec


@asynccontextmanager
async def _connected(way: Way, depot: Depot) -> AsyncIterator[ssh.SshConnection]:
    async with ssh.open(
        _target(way), clock=SystemClock(), artifacts=depot, patience=way.patience
    ) as connection:
        yield connection


def _target(way: Way) -> ssh.Target:
    user, host, port = parse_target(way.target, user=way.user)
    private_keys = keys(way)
    if not (private_keys or way.agent or way.password):
        raise BadConfiguration(
            f"{way.target}: there is nothing to log in with; name a private key with --identity, or give the password with "
            "--ask-password or --password-file"
        )
    credentials = ssh.Credentials(
        private_keys=private_keys,
        agent=way.agent,
        password=way.password,
        are_chosen=way.are_chosen,
    )
    through = None
    if way.jump:
        jump_user, jump_host, jump_port = parse_target(way.jump, user=way.user, field="--jump")
        if not (credentials.private_keys or credentials.agent):
            # The password is the Mac's, and no other host's business.
            raise BadConfiguration("--jump needs a key: give one with --identity, or an SSH agent")
        through = ssh.Target(
            host=jump_host,
            user=jump_user,
            port=jump_port,
            credentials=replace(credentials, password=None),
            host_keys=ssh.KnownHosts(way.known_hosts),
        )
    return ssh.Target(
        host=host,
        user=user,
        port=port,
        credentials=credentials,
        host_keys=ssh.KnownHosts(way.known_hosts, advice="give --trust-again once"),
        trust_again=ssh.TrustAgain() if way.trust_again else None,
        through=through,
    )


def keys(way: Way) -> tuple[Secret, ...]:
    """Return the private keys to log in with; one that nobody chose may be unreadable."""
    found = []
    for path in way.identities:
        try:
            found.append(_key(path))
        except (BadConfiguration, OSError):
            if way.are_chosen:
                raise
    return tuple(found)


def _key(path: Path) -> Secret:
    with naming("--identity", path), path.open("rb") as file:
        content = file.read(_LONGEST_KEY + 1)
    if len(content) > _LONGEST_KEY:
        raise BadConfiguration(f"{path} is too large for a private key")
    try:
        return Secret(content.decode())
    except UnicodeDecodeError:
        # The error holds the key, so it is not passed on.
        raise BadConfiguration(f"{path} is no private key in OpenSSH's or PEM format") from None
