"""Undo what the steps did to a Mac, in reverse: steps, too, so they are planned, cut and resumed like the others.

What others brought stays: files are removed by names that only we use or when they hold what we wrote, and of the packet filter's
file all lines but ours stay as they are, byte for byte. What a Mac was before nobody knows: its name, its sleep, its updates and its
list of local networks stay as they are. Of each thing that which shows that it is ours goes last. The right to use sudo without a
password goes at the very end, since everything before needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bramley.api.names import host, launchd
from bramley.base.errors import UnsupportedHost
from bramley.host import login, pf_conf, vms
from bramley.host.commands import Command, Find, Look, LookAt, Probe, Remove, Run, Write
from bramley.host.drift import Part
from bramley.host.facts import LINK, Facts
from bramley.host.launch_daemon import LaunchDaemon, unload
from bramley.host.step import Step
from bramley.host.steps import (
    firewall,
    log_rotation,
    node_exporter,
    sudo,
    tailnet_resolver,
    tailscale,
    tart,
)

Commands = Callable[[Facts], Iterator[Command]]
_AGENT = LaunchDaemon(launchd.AGENT, b"")
_PACKET_FILTER = LaunchDaemon(launchd.PACKET_FILTER, firewall.boot_job())
_BINARY = Find(host.AGENT_BINARY)
_IN_AGENT_FOLDER = Look(("ls", "-1", "-A", host.AGENT_FOLDER))
_AGENT_DATA = (
    host.AGENT_ROOT,
    host.AGENT_STATE,
    host.VM_USER_DATA,
    host.VNC_CONTROL,
    host.VM_LOGS,
    host.AGENT_LOG,
    f"{host.AGENT_LOG}.1",
)
_TAILSCALE_FILES = (
    host.TAILSCALE_AUTH_KEY,
    host.TAILSCALED_FOLDER,
    host.TAILSCALE_BINARY,
    host.TAILSCALED_BINARY,
    host.TAILSCALED_LOG,
    f"{host.TAILSCALED_LOG}.1",
    host.TAILNET_NOTE,
)
_KEYS = Look(("ls", "-1", "-A", host.TAILSCALE_AUTH_KEY.rpartition("/")[0]))
_WRAPPER = LookAt(host.TART_BINARY, most=len(tart.WRAPPER) + 1)
_BUNDLES = (host.TART_BUNDLE, host.TART_BUNDLE_BEFORE)


@dataclass(frozen=True, slots=True)
class Undoing:
    """Take one thing away; a step like any other."""

    name: str
    title: str
    asked: tuple[Probe, ...]
    commands: Commands
    refused: Callable[[Facts], str] = lambda _: ""
    further: Callable[[Facts], Sequence[Probe]] = lambda _: ()

    def wanted(self) -> None:
        """Stamp nothing."""

    def looks(self) -> list[Probe]:
        """Ask for what would be taken away."""
        return list(self.asked)

    def looks_further(self, seen: Facts) -> Sequence[Probe]:
        """Ask for what the first answers lead to."""
        return self.further(seen)

    def refuse(self, seen: Facts) -> None:
        """Refuse what would end somebody's work."""
        if why := self.refused(seen):
            raise UnsupportedHost(why)

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Take away what is there."""
        yield from self.commands(seen)


def steps(user: str, *, keep_tart: bool = True) -> list[Step]:
    """Return what takes everything of ours from a Mac whose user this is."""
    return [
        _job(),
        _agent(),
        _kubeconfig(),
        _log_rotation(),
        _node_exporter(),
        _resolver(),
        _tailscale(),
        _firewall(),
        *([] if keep_tart else [_tart()]),
        _stamps(),
        _auto_login(user),
        _sudo(user),
    ]


def of_part(part: Part) -> Step | None:
    """Return what takes one part away that is wanted no more; None for one that has to stay as long as the Mac serves."""
    makers = {
        Part.TAILSCALE: _tailscale,
        Part.RESOLVER: _resolver,
        Part.NODE_EXPORTER: _node_exporter,
        Part.LOG_ROTATION: _log_rotation,
    }
    return makers[part]() if part in makers else None


def _of_idle(one: Undoing) -> Undoing:
    """Let something be taken away only from a Mac that runs no VMs, whether its agent is there or not."""

    def commands(seen: Facts) -> Iterator[Command]:
        if todo := [*one.commands(seen)]:
            yield vms.none_has_started()
        yield from todo

    def refused(seen: Facts) -> str:
        if not (vms.may_run(seen) and any(one.commands(seen))):
            return one.refused(seen)
        return "VMs are running, and nobody would look after them any more; drain the Mac first"

    return replace(one, asked=(*one.asked, vms.PROBE), commands=commands, refused=refused)


def _job() -> Undoing:
    asked = tuple(_AGENT.looks())
    return _of_idle(Undoing("agent-job", "the agent's job", asked, _AGENT.away))


def _agent() -> Undoing:
    def commands(seen: Facts) -> Iterator[Command]:
        found = seen.found(_BINARY)
        is_foreign = found and found.kind == LINK and found.target != host.AGENT_CURRENT_BINARY
        if found and not is_foreign:
            yield _removed(host.AGENT_BINARY)
        yield from _present(seen, *_AGENT_DATA)

    asked = (_BINARY, *(Find(path) for path in _AGENT_DATA))
    return _of_idle(Undoing("agent", "the agent, its records and logs", asked, commands))


def _kubeconfig() -> Undoing:
    def commands(seen: Facts) -> Iterator[Command]:
        held = set(seen.said(_IN_AGENT_FOLDER).text.split())
        is_ours_alone = held <= {_name(path) for path in files}
        yield from _present(seen, *([host.AGENT_FOLDER] if is_ours_alone else files))

    files = (host.AGENT_KUBECONFIG, host.CLIENT_AUTHORITY)
    finds = [Find(path) for path in (host.AGENT_FOLDER, *files)]
    return Undoing(
        "kubeconfig", "the agent's way to the cluster", (*finds, _IN_AGENT_FOLDER), commands
    )


def _log_rotation() -> Undoing:
    files = (host.LOG_ROTATION, host.LOG_ROTATION_LOG, f"{host.LOG_ROTATION_LOG}.1")
    return _daemon("log-rotation", log_rotation.DAEMON, files)


def _node_exporter() -> Undoing:
    files = (
        host.NODE_EXPORTER_INCOMING,
        host.NODE_EXPORTER_BINARY,
        host.NODE_EXPORTER_LOG,
        f"{host.NODE_EXPORTER_LOG}.1",
        host.NODE_EXPORTER_WRAPPER,
    )
    return _daemon("node-exporter", node_exporter.DAEMON, files)


def _daemon(name: str, daemon: LaunchDaemon, files: tuple[str, ...]) -> Undoing:
    """Take a daemon of ours away; its property list, which shows that the files are ours, goes last."""

    def commands(seen: Facts) -> Iterator[Command]:
        if seen.file(LookAt(daemon.path)) is None and not daemon.is_loaded(seen):
            return
        if daemon.is_loaded(seen):
            yield from unload(daemon.label)
        yield from _present(seen, *files, daemon.path)

    asked = (*daemon.looks(), Find(daemon.path), *(Find(path) for path in files))
    return Undoing(name, f"the job {daemon.label}", asked, commands)


def _resolver() -> Undoing:
    file = LookAt(host.TAILNET_RESOLVER)

    def commands(seen: Facts) -> Iterator[Command]:
        if (seen.file(file) or b"").startswith(tailnet_resolver.CONTENT):
            yield _removed(host.TAILNET_RESOLVER)

    return Undoing("tailnet-resolver", "names of the tailnet", (file,), commands)


def _tailscale() -> Undoing:
    daemon, beside = tailscale.DAEMON, _KEYS
    folder = beside.argv[-1]

    def commands(seen: Facts) -> Iterator[Command]:
        # Tailscale's own installation uses the same label, and another property list.
        if not daemon.is_current(seen):
            return
        if daemon.is_loaded(seen):
            yield _logged_out()
            yield from unload(daemon.label)
        yield from _present(seen, *_TAILSCALE_FILES)
        is_empty = set(seen.said(beside).text.split()) <= {_name(host.TAILSCALE_AUTH_KEY)}
        yield from _present(seen, *([folder] if is_empty else []), daemon.path)

    def refused(seen: Facts) -> str:
        if not (daemon.is_current(seen) and tailscale.comes_over_tailnet(seen)):
            return ""
        return "this connection goes over the tailnet that would be left; come by another address of the Mac"

    finds = [Find(path) for path in (*_TAILSCALE_FILES, folder, daemon.path)]
    asked = (*daemon.looks(), *finds, beside, tailscale.CONNECTION)
    return Undoing("tailscale", "the tailnet", asked, commands, refused)


def _logged_out() -> Run:
    return Run(
        argv=(host.TAILSCALE_BINARY, "logout"),
        purpose="leave the tailnet",
        as_root=True,
        # One that is in none, or cannot reach it, leaves it by losing its state.
        accepts=(0, 1),
    )


def _firewall() -> Undoing:
    """Take our rules away; the file that loads them first, so that no start of the Mac misses what it names."""

    def commands(seen: Facts) -> Iterator[Command]:
        text = seen.file(firewall.CONF) or b""
        if pf_conf.without_block(text) != text:
            yield Write(
                path=firewall.conf_path(seen),
                content=pf_conf.without_block(text),
                purpose="take our block out of the packet filter's file",
                check=("pfctl", "-n", "-f", "{}"),
                before=text,
            )
        if firewall.is_in_force(seen):
            yield Run(
                argv=("pfctl", "-a", host.PF_ANCHOR, "-F", "all"),
                purpose="put our rules out of force",
                as_root=True,
            )
        yield from _present(seen, host.PF_ANCHOR_FILE, host.PF_BOOT_LOG, f"{host.PF_BOOT_LOG}.1")
        yield from _PACKET_FILTER.away(seen)

    def refused(seen: Facts) -> str:
        text = seen.file(firewall.CONF) or b""
        is_whole = len(text) < firewall.CONF.most
        return (
            "" if is_whole and pf_conf.without_block(text) == text else firewall.conf_refusal(seen)
        )

    paths = (host.PF_ANCHOR_FILE, host.PF_BOOT_LOG, f"{host.PF_BOOT_LOG}.1")
    conf = (firewall.CONF, firewall.CONF_PLACE)
    asked = (*conf, firewall.LIVE, *(Find(path) for path in paths), *_PACKET_FILTER.looks())
    return Undoing(
        "firewall",
        "what VMs may reach",
        asked,
        commands,
        refused,
        firewall.conf_looks_further,
    )


def _tart() -> Undoing:
    def commands(seen: Facts) -> Iterator[Command]:
        if seen.file(_WRAPPER) == tart.WRAPPER:
            # The wrapper, which shows that the bundle is ours, goes last.
            yield from _present(seen, *_BUNDLES)
            yield _removed(host.TART_BINARY)

    bundles = [Find(path) for path in _BUNDLES]
    return _of_idle(Undoing("tart", "tart", (_WRAPPER, *bundles), commands))


def _stamps() -> Undoing:
    return Undoing(
        "stamps",
        "what was noted of this Mac",
        (Find(host.STAMPS_FOLDER),),
        lambda seen: _present(seen, host.STAMPS_FOLDER),
    )


def _auto_login(user: str) -> Undoing:
    setting = login.auto_login_user(user)

    def commands(seen: Facts) -> Iterator[Command]:
        told = seen.said(setting.look)
        # Somebody else's is left alone; without anybody's name the password is of no use and only a danger.
        if told.code == 0 and not setting.is_set(seen):
            return
        yield from _present(seen, host.KCPASSWORD)
        if setting.is_set(seen):
            yield Run(
                argv=("defaults", "delete", setting.domain, setting.key),
                purpose=f"log {user} in by itself no more",
                as_root=True,
            )

    return Undoing("auto-login", "automatic login", (setting.look, login.FOUND), commands)


def _sudo(user: str) -> Undoing:
    file = sudo.file(user)

    def commands(seen: Facts) -> Iterator[Command]:
        # Somebody may have written other rules there since.
        if seen.file(file) == sudo.rule(user):
            yield _removed(file.path)

    return Undoing("sudo", "sudo without a password", (file,), commands)


def _present(seen: Facts, *paths: str) -> Iterator[Command]:
    """Yield the removal of those paths at which there is something."""
    yield from (_removed(path) for path in paths if seen.found(Find(path)))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _removed(path: str) -> Remove:
    return Remove(path=path, purpose=f"remove {path}")
