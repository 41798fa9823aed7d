"""The tailnet: its programs, its daemon, and a login that is made once.

A Mac that is logged in with the wanted tags is not logged in again. The key lies in a file that only root may read, for as long as
one command takes: whether that succeeds or fails the file goes, and one that a cut has left goes at the next plan. It is never part
of a command line.
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
from bramley.host import drift, unpacking
from bramley.host.commands import (
    Command,
    Find,
    Folder,
    Look,
    LookAt,
    Probe,
    Remove,
    Rename,
    Run,
    Wait,
    Write,
)
from bramley.host.facts import Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.plist import THROTTLE_SECONDS
from bramley.host.spec import Tailnet
from bramley.host.unpacking import Unpacking

# An application's secret stands for no single Mac; what it makes is thrown away with its Mac and needs nobody's consent.
APPLICATION = "tskey-client-"
APPLICATION_OPTIONS = "?ephemeral=true&preauthorized=true"
ADDRESSES = (
    ipaddress.ip_network("100.64.0.0/10"),
    ipaddress.ip_network("fd7a:115c:a1e0::/48"),
)

_TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]{0,49}", re.ASCII)
_KEY = re.compile(r"tskey-[!-~]{1,500}", re.ASCII)
_VERSIONS = (Look((host.TAILSCALE_BINARY, "version")), Look((host.TAILSCALED_BINARY, "--version")))
_STATUS = Look(
    (host.TAILSCALE_BINARY, "status", "--json", "--peers=false"), as_root=True, most=256 * 1024
)
_ADDRESS = Look((host.TAILSCALE_BINARY, "ip", "-4"))
_KEY_FILE = Find(host.TAILSCALE_AUTH_KEY)
_KEY_FOLDER = host.TAILSCALE_AUTH_KEY.rpartition("/")[0]
_NOTE = LookAt(host.TAILNET_NOTE, most=64 * 1024)
# Where this very connection comes in: its third word is the address of the Mac.
CONNECTION = Look(("printenv", "SSH_CONNECTION"))
_IN = "Running"
# What a daemon says of itself until it knows better.
_STARTING = ("NoState", "Starting")
_PRIVATE = 0o700
_SAID_WITHIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Tailscale:
    """Keep a Mac in the tailnet, under the name of its Node."""

    name: ClassVar[str] = "tailscale"
    title: ClassVar[str] = "the tailnet"

    tailnet: Tailnet
    node_name: str

    def __post_init__(self) -> None:
        _require(self.tailnet)

    def wanted(self) -> drift.Wanted:
        """Stamp the programs, the daemon and what is the same for a whole fleet; not the key."""
        digests = {
            "binaries": self.tailnet.binaries.sha256,
            "job": drift.digest(DAEMON.plist),
            "settings": drift.digest(msgspec.json.encode(self._shared())),
        }
        return drift.Wanted(drift.Part.TAILSCALE, digests)

    def looks(self) -> list[Probe]:
        """Ask for the programs, the daemon, the login, and which way this connection takes."""
        files: list[Probe] = [_KEY_FILE, _NOTE, Find(host.PROGRAMS), Find(host.TAILSCALED_FOLDER)]
        asked = [*_VERSIONS, _STATUS, CONNECTION]
        return [*files, *asked, *DAEMON.looks(), *self._unpacking.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse to end the daemon that carries this very connection."""
        is_changed = not DAEMON.is_current(seen) or any(self._programs(seen))
        is_ended = DAEMON.is_loaded(seen) and is_changed
        if is_ended and comes_over_tailnet(seen):
            raise UnsupportedHost(
                "tailscale has to be replaced, and this connection goes through it; come by another address of the Mac, or "
                "leave it out with --skip tailscale"
            )

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Bring the programs and let them answer, change them while the daemon is down, and log in if that was not done with these tags."""
        if seen.found(_KEY_FILE):
            yield _forget_key()
        if self._is_stale(seen):
            yield from self._bring(seen)
        loading = [*DAEMON.plan(seen, changes=[*self._programs(seen)])]
        yield from loading
        if not (self._is_in(seen) or self._is_coming(seen)):
            yield from self._log_in()
            return
        if loading or self._is_coming(seen):
            yield _come_back()
        if seen.file(_NOTE) != self._noted():
            yield self._up()
            yield from self._note()

    def confirm(self, seen: Facts) -> None:
        """Tell why the Mac is not in the tailnet, as far as its daemon knows."""
        if not self._is_in(seen):
            status = _status(seen)
            health = "; ".join(str(one) for one in status.get("Health") or ())[:300]
            state = f"(state {status.get('BackendState', 'unknown')}{health and f': {health}'})"
            if self._is_coming(seen):
                raise NotConverged(
                    f"the Mac was in the tailnet and has not come back {state}; {host.TAILSCALED_LOG} may say why"
                )
            raise NotConverged(
                f"the tailnet did not take this Mac {state}; the auth key may be spent, expired, or not allowed to use "
                f"{', '.join(self.tailnet.tags) or 'no tags'}"
            )

    def tidy(self) -> Iterator[Command]:
        """Take the key away."""
        yield _forget_key()

    @property
    def _unpacking(self) -> Unpacking:
        return Unpacking(self.tailnet.binaries, host.LIBRARIES, "tailscale")

    def _is_stale(self, seen: Facts) -> bool:
        wanted = self.tailnet.binaries.version
        found = [seen.said(look) for look in _VERSIONS]
        return any(said.code != 0 or said.text.partition("\n")[0] != wanted for said in found)

    def _bring(self, seen: Facts) -> Iterator[Command]:
        """Yield what brings both programs; neither is used before both have said that they are of this version."""
        wanted = self.tailnet.binaries.version
        yield from self._unpacking.bring(seen, answer=("tailscale", "version"))
        for name, *words in (("tailscale", "version"), ("tailscaled", "--version")):
            yield Wait(
                look=Look((f"{self._unpacking.incoming}/{name}", *words)),
                text=wanted,
                purpose=f"let {name} say that it is {wanted} before it is used",
                within=_SAID_WITHIN,
            )

    def _programs(self, seen: Facts) -> Iterator[Command]:
        yield from unpacking.folder(seen, host.TAILSCALED_FOLDER, mode=_PRIVATE)
        if not self._is_stale(seen):
            yield from self._unpacking.clear_left(seen)
            return
        yield from unpacking.present(seen, host.PROGRAMS)
        for program in (host.TAILSCALED_BINARY, host.TAILSCALE_BINARY):
            name = program.rpartition("/")[2]
            yield Rename(
                path=f"{self._unpacking.incoming}/{name}",
                to=program,
                purpose=f"use {name} {self.tailnet.binaries.version}",
            )
        yield from self._unpacking.clear()

    def _is_in(self, seen: Facts) -> bool:
        status = _status(seen)
        tags = (status.get("Self") or {}).get("Tags") or []
        has_tags = set(tags) == set(self.tailnet.tags)
        # A key may bring tags of its own; only those that we once asked for are too many.
        is_left_to_key = not self.tailnet.tags and not _noted_tags(seen)
        return status.get("BackendState") == _IN and (has_tags or is_left_to_key)

    def _is_coming(self, seen: Facts) -> bool:
        """Tell whether a daemon that was started just now is still on its way to where it was: it needs time, and no key."""
        is_starting = _status(seen).get("BackendState") in _STARTING
        return is_starting and seen.file(_NOTE) == self._noted()

    def _log_in(self) -> Iterator[Command]:
        yield Wait(look=_STATUS, purpose="wait for the tailnet's daemon")
        yield Folder(path=_KEY_FOLDER, purpose=f"make the folder {_KEY_FOLDER}")
        yield Write(
            path=host.TAILSCALE_AUTH_KEY,
            content=_key(self.tailnet.auth_key),
            purpose="give tailscale its key",
            mode=0o600,
        )
        yield self._up(f"--auth-key=file:{host.TAILSCALE_AUTH_KEY}")
        yield _forget_key()
        yield Wait(
            look=_ADDRESS,
            text="100.",
            purpose="wait for an address in the tailnet",
            else_go_on=True,
        )
        yield from self._note()

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
            purpose="join the tailnet" if key else "set how this Mac is in the tailnet",
            as_root=True,
            within=timedelta(seconds=90),
        )

    def _note(self) -> Iterator[Command]:
        yield Folder(path=host.STAMPS_FOLDER, purpose="make the folder of the stamps")
        yield Write(
            path=host.TAILNET_NOTE,
            content=self._noted(),
            purpose="note how this Mac is in the tailnet",
        )

    def _noted(self) -> bytes:
        return msgspec.json.encode({"hostname": self.node_name, **self._shared()}) + b"\n"

    def _shared(self) -> dict[str, Any]:
        return {"tags": sorted(self.tailnet.tags), "accept_routes": self.tailnet.accept_routes}


def _require(tailnet: Tailnet) -> None:
    """Refuse a credential that cannot work, before anything is sent anywhere; nothing of it is shown."""
    if not _KEY.fullmatch(tailnet.auth_key.reveal()):
        raise BadConfiguration(
            "the tailnet's auth key is none: it begins with tskey- and has no blanks"
        )
    if tailnet.auth_key.reveal().startswith(APPLICATION) and not tailnet.tags:
        raise BadConfiguration(
            f"the tailnet's auth key is the secret of an application ({APPLICATION}…), which needs tags; name at least one"
        )
    for tag in tailnet.tags:
        if not _TAG.fullmatch(tag):
            raise BadConfiguration(f"{tag[:60]!r} is no tag of a tailnet; write it like tag:macs")


def _key(given: Secret) -> Secret:
    """Return the key with what an application's secret needs to make short-lived ones."""
    plain = given.reveal()
    is_bare = plain.startswith(APPLICATION) and "?" not in plain
    return Secret(plain + APPLICATION_OPTIONS) if is_bare else given


def _forget_key() -> Remove:
    return Remove(path=host.TAILSCALE_AUTH_KEY, purpose="remove tailscale's key")


def _come_back() -> Wait:
    return Wait(
        look=_STATUS,
        text=f'"BackendState": "{_IN}"',
        purpose="wait until the Mac is in the tailnet again",
        # Why it is not is told from the facts.
        else_go_on=True,
    )


def _noted_tags(seen: Facts) -> Any:
    try:
        return msgspec.json.decode(seen.file(_NOTE) or b"{}", type=dict[str, Any]).get("tags")
    except msgspec.MsgspecError:
        return None


def _status(seen: Facts) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(seen.said(_STATUS).output)
    except msgspec.MsgspecError:
        return {}
    return found if isinstance(found, dict) else {}


def comes_over_tailnet(seen: Facts) -> bool:
    """Tell whether this very connection goes over the tailnet; asked for with `CONNECTION`."""
    words = seen.said(CONNECTION).text.split()
    try:
        here = ipaddress.ip_address(words[2]) if len(words) == 4 else None
    except ValueError:
        return False
    return any(here in network for network in ADDRESSES if here is not None)


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
