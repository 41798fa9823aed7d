"""Tailscale: its programs, its daemon, and a login that is done once.

A Mac that is logged in with the desired tags is not logged in again. The auth key is in a file that only root may read while one command
runs: the file is removed whether that succeeds or fails, and the next plan removes one that an interruption has left. The key is
never part of a command line.
"""

from __future__ import annotations

import ipaddress
import plistlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from bramley.api.names import host, launchd
from bramley.base.errors import BadConfiguration, NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import archive_install, drift
from bramley.host.agent_daemon import THROTTLE_SECONDS
from bramley.host.archive_install import ArchiveInstall
from bramley.host.commands import (
    Command,
    Folder,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Run,
    RunProbe,
    Stat,
    Wait,
    Write,
)
from bramley.host.facts import Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.spec import Tailnet
from bramley.host.step import Step

# The secret of an OAuth client creates auth keys: for ephemeral devices, and without approval by an administrator.
OAUTH_CLIENT_PREFIX = "tskey-client-"
OAUTH_KEY_OPTIONS = "?ephemeral=true&preauthorized=true"
TAILNET_NETWORKS = (
    ipaddress.ip_network("100.64.0.0/10"),
    ipaddress.ip_network("fd7a:115c:a1e0::/48"),
)

_TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]{0,49}", re.ASCII)
_KEY = re.compile(r"tskey-[!-~]{1,500}", re.ASCII)
_VERSIONS = (
    RunProbe((host.TAILSCALE_BINARY, "version")),
    RunProbe((host.TAILSCALED_BINARY, "--version")),
)
_STATUS = RunProbe(
    (host.TAILSCALE_BINARY, "status", "--json", "--peers=false"), as_root=True, max_bytes=256 * 1024
)
_ADDRESS = RunProbe((host.TAILSCALE_BINARY, "ip", "-4"))
_KEY_FILE = Stat(host.TAILSCALE_AUTH_KEY)
_KEY_FOLDER = host.TAILSCALE_AUTH_KEY.rpartition("/")[0]
_NOTE = ReadFile(host.TAILNET_NOTE, max_bytes=64 * 1024)
# The third word is the address of the Mac in this SSH connection.
SSH_CONNECTION = RunProbe(("printenv", "SSH_CONNECTION"))
_RUNNING = "Running"
# The states of a daemon that was just started.
_STARTING = ("NoState", "Starting")
_PRIVATE = 0o700
_VERSION_TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Tailscale(Step):
    """Keep a Mac in the tailnet, with the name of its Node."""

    name: ClassVar[str] = "tailscale"
    title: ClassVar[str] = "the tailnet"

    tailnet: Tailnet
    node_name: str

    def __post_init__(self) -> None:
        _require(self.tailnet)

    def desired(self) -> drift.DesiredPart:
        """Stamp the programs, the daemon and the settings that a fleet shares; not the key."""
        digests = {
            "binaries": self.tailnet.binaries.sha256,
            "job": drift.digest(DAEMON.plist),
            "settings": drift.digest(msgspec.json.encode(self._shared())),
        }
        return drift.DesiredPart(drift.Part.TAILSCALE, digests)

    def probes(self) -> list[Probe]:
        """Probe the programs, the daemon, the login, and the address of this connection."""
        files: list[Probe] = [_KEY_FILE, _NOTE, Stat(host.PROGRAMS), Stat(host.TAILSCALED_FOLDER)]
        runs = [*_VERSIONS, _STATUS, SSH_CONNECTION]
        return [*files, *runs, *DAEMON.probes(), *self._install.probes()]

    def check_supported(self, facts: Facts) -> None:
        """Refuse to stop the daemon that carries this connection."""
        is_changed = not DAEMON.is_current(facts) or any(self._programs(facts))
        is_stopped = DAEMON.is_loaded(facts) and is_changed
        if is_stopped and is_over_tailnet(facts):
            raise UnsupportedHost(
                "tailscale has to be replaced, and this connection goes through it; connect to another address of the Mac, or "
                "skip this step with --skip tailscale"
            )

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Upload and check the programs, replace them while the daemon is unloaded, and log in unless that was done with these tags."""
        if facts.stat(_KEY_FILE):
            yield _remove_key()
        # While the old daemon runs: it may be the only way to reach the Mac, so it is stopped for a checked version only.
        if self._is_stale(facts):
            yield from self._upload(facts)
        loading = [*DAEMON.plan(facts, changes=[*self._programs(facts)])]
        yield from loading
        if not (self._is_logged_in(facts) or self._is_starting(facts)):
            yield from self._log_in()
            return
        if loading or self._is_starting(facts):
            yield _wait_running()
        if facts.file(_NOTE) != self._note():
            yield self._up()
            yield from self._write_note()

    def verify(self, facts: Facts) -> None:
        """Report why the Mac is not in the tailnet, as far as its daemon knows."""
        if not self._is_logged_in(facts):
            status = _status(facts)
            health = "; ".join(str(text) for text in status.get("Health") or ())[:300]
            state = f"(state {status.get('BackendState', 'unknown')}{health and f': {health}'})"
            if self._is_starting(facts):
                raise NotConverged(
                    f"the Mac was in the tailnet and has not come back {state}; see {host.TAILSCALED_LOG}"
                )
            raise NotConverged(
                f"the tailnet did not accept this Mac {state}; the auth key may be used, expired, or not allowed to use "
                f"{', '.join(self.tailnet.tags) or 'no tags'}"
            )

    def clean_up(self) -> Iterator[Command]:
        """Remove the key."""
        yield _remove_key()

    @property
    def _install(self) -> ArchiveInstall:
        return ArchiveInstall(self.tailnet.binaries, host.LIBRARIES, "tailscale")

    def _is_stale(self, facts: Facts) -> bool:
        desired = self.tailnet.binaries.version
        results = [facts.result(probe) for probe in _VERSIONS]
        return any(each.code != 0 or each.text.partition("\n")[0] != desired for each in results)

    def _upload(self, facts: Facts) -> Iterator[Command]:
        """Yield the commands that upload both programs; neither is used before both have printed this version."""
        desired = self.tailnet.binaries.version
        yield from self._install.unpack(facts, version_command=("tailscale", "version"))
        for name, *arguments in (("tailscale", "version"), ("tailscaled", "--version")):
            yield Wait(
                probe=RunProbe((f"{self._install.incoming}/{name}", *arguments)),
                text=desired,
                purpose=f"check that {name} is {desired}",
                timeout=_VERSION_TIMEOUT,
            )

    def _programs(self, facts: Facts) -> Iterator[Command]:
        yield from archive_install.ensure_folder(facts, host.TAILSCALED_FOLDER, mode=_PRIVATE)
        if not self._is_stale(facts):
            yield from self._install.remove_leftovers(facts)
            return
        yield from archive_install.ensure_exists(facts, host.PROGRAMS)
        for program in (host.TAILSCALED_BINARY, host.TAILSCALE_BINARY):
            name = program.rpartition("/")[2]
            yield Rename(
                path=f"{self._install.incoming}/{name}",
                to=program,
                purpose=f"use {name} {self.tailnet.binaries.version}",
            )
        yield from self._install.remove_temporary()

    def _is_logged_in(self, facts: Facts) -> bool:
        status = _status(facts)
        tags = (status.get("Self") or {}).get("Tags") or []
        has_tags = set(tags) == set(self.tailnet.tags)
        # An auth key may set tags; only tags that we once requested must be removed again.
        are_set_by_key = not self.tailnet.tags and not _noted_tags(facts)
        return status.get("BackendState") == _RUNNING and (has_tags or are_set_by_key)

    def _is_starting(self, facts: Facts) -> bool:
        """Return whether a daemon with a login was just started: it needs time, and no key."""
        is_starting = _status(facts).get("BackendState") in _STARTING
        return is_starting and facts.file(_NOTE) == self._note()

    def _log_in(self) -> Iterator[Command]:
        yield Wait(probe=_STATUS, purpose="wait for the tailnet's daemon")
        yield Folder(path=_KEY_FOLDER, purpose=f"create the folder {_KEY_FOLDER}")
        yield Write(
            path=host.TAILSCALE_AUTH_KEY,
            content=_key(self.tailnet.auth_key),
            purpose="write the auth key of tailscale",
            mode=0o600,
        )
        yield self._up(f"--auth-key=file:{host.TAILSCALE_AUTH_KEY}")
        yield _remove_key()
        yield Wait(
            probe=_ADDRESS,
            text="100.",
            purpose="wait for an address in the tailnet",
            ignore_failure=True,
        )
        # Last: without the note the next plan applies the settings again.
        yield from self._write_note()

    def _up(self, *key: str) -> Run:
        tags = ",".join(self.tailnet.tags)
        options = (
            f"--hostname={self.node_name}",
            *([f"--advertise-tags={tags}"] if tags else []),
            *(["--accept-routes"] if self.tailnet.accept_routes else []),
        )
        up = (host.TAILSCALE_BINARY, "up", "--reset", "--ssh=false", "--timeout=30s")
        return Run(
            argv=(*up, *key, *options),
            purpose="join the tailnet" if key else "apply the settings of tailscale",
            as_root=True,
            timeout=timedelta(seconds=90),
        )

    def _write_note(self) -> Iterator[Command]:
        yield drift.CREATE_FOLDER
        yield Write(
            path=host.TAILNET_NOTE,
            content=self._note(),
            purpose="record the settings of tailscale",
        )

    def _note(self) -> bytes:
        return msgspec.json.encode({"hostname": self.node_name, **self._shared()}) + b"\n"

    def _shared(self) -> dict[str, Any]:
        return {"tags": sorted(self.tailnet.tags), "accept_routes": self.tailnet.accept_routes}


def _require(tailnet: Tailnet) -> None:
    """Refuse an invalid auth key or tag, before anything is sent; the key is not shown."""
    if not _KEY.fullmatch(tailnet.auth_key.reveal()):
        raise BadConfiguration(
            "the tailnet's auth key is not valid: it must begin with tskey- and contain no spaces"
        )
    if tailnet.auth_key.reveal().startswith(OAUTH_CLIENT_PREFIX) and not tailnet.tags:
        raise BadConfiguration(
            f"the tailnet's auth key is the secret of an OAuth client ({OAUTH_CLIENT_PREFIX}…), which needs tags; configure at least one"
        )
    for tag in tailnet.tags:
        if not _TAG.fullmatch(tag):
            raise BadConfiguration(
                f"{tag[:60]!r} is not a valid tag of a tailnet; write it like tag:macs"
            )


def _key(auth_key: Secret) -> Secret:
    """Return the key, with the options for ephemeral devices if it is the secret of an OAuth client."""
    plain = auth_key.reveal()
    is_bare = plain.startswith(OAUTH_CLIENT_PREFIX) and "?" not in plain
    return Secret(plain + OAUTH_KEY_OPTIONS) if is_bare else auth_key


def _remove_key() -> Remove:
    return Remove(path=host.TAILSCALE_AUTH_KEY, purpose="remove the auth key of tailscale")


def _wait_running() -> Wait:
    return Wait(
        probe=_STATUS,
        text=f'"BackendState": "{_RUNNING}"',
        purpose="wait until the Mac is in the tailnet again",
        # `verify` reports the reason from the facts.
        ignore_failure=True,
    )


def _noted_tags(facts: Facts) -> Any:
    try:
        return msgspec.json.decode(facts.file(_NOTE) or b"{}", type=dict[str, Any]).get("tags")
    except msgspec.MsgspecError:
        return None


def _status(facts: Facts) -> dict[str, Any]:
    try:
        status = msgspec.json.decode(facts.result(_STATUS).output)
    except msgspec.MsgspecError:
        return {}
    return status if isinstance(status, dict) else {}


def is_over_tailnet(facts: Facts) -> bool:
    """Return whether this SSH connection goes through the tailnet; needs the probe `SSH_CONNECTION`."""
    fields = facts.result(SSH_CONNECTION).text.split()
    try:
        address = ipaddress.ip_address(fields[2]) if len(fields) == 4 else None
    except ValueError:
        return False
    return any(address in network for network in TAILNET_NETWORKS if address is not None)


DAEMON = LaunchDaemon(
    launchd.TAILSCALED,
    plistlib.dumps(
        {
            "Label": launchd.TAILSCALED,
            "ProgramArguments": [
                host.TAILSCALED_BINARY,
                f"--state={host.TAILSCALED_STATE}",
                f"--socket={host.TAILSCALED_SOCKET}",
                f"--port={host.TAILSCALED_PORT}",
            ],
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": THROTTLE_SECONDS,
            "StandardOutPath": host.TAILSCALED_LOG,
            "StandardErrorPath": host.TAILSCALED_LOG,
        },
        sort_keys=False,
    ),
)
