"""The steps that remove Bramley from a Mac, in reverse order of installation; they are planned, interrupted and resumed like others.

Foreign files stay: a file is removed if only Bramley uses its name or if it contains what Bramley wrote, and all other lines of the packet
filter's file stay byte for byte. Settings whose earlier value is unknown stay: the names, sleep, updates and local networks.
Within each step, the file that identifies the rest as ours is removed last. The sudo rule is removed at the very end, because all
other removals need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bramley.api.names import host, launchd
from bramley.host import actions_runner_job, drift, loginwindow, shared_probes
from bramley.host.commands import Command, ReadFile, Remove, Run, RunProbe, Stat, Write
from bramley.host.drift import Part
from bramley.host.facts import LINK, Facts
from bramley.host.launch_daemon import LaunchDaemon, unload
from bramley.host.removal_step import RemovalStep
from bramley.host.step import Step
from bramley.host.steps import (
    build_environment,
    dhcp_leases,
    firewall,
    log_rotation,
    node_exporter,
    sudo,
    tailnet_resolver,
    tailscale,
    tart,
)

_AGENT = LaunchDaemon(launchd.AGENT, b"")
_PACKET_FILTER = LaunchDaemon(launchd.PACKET_FILTER, firewall.boot_job())
_BINARY = Stat(host.AGENT_BINARY)
_AGENT_FILES = RunProbe(("ls", "-1", "-A", host.AGENT_FOLDER))
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
_KEY_FILES = RunProbe(("ls", "-1", "-A", host.TAILSCALE_AUTH_KEY.rpartition("/")[0]))
_WRAPPER = ReadFile(host.TART_BINARY, max_bytes=len(tart.WRAPPER) + 1)
_BUNDLES = (host.TART_BUNDLE, host.TART_BUNDLE_BEFORE)


def steps(user: str, *, keep_tart: bool = True) -> list[Step]:
    """Return the steps that remove all of Bramley from a Mac with this user."""
    return [
        # First: until they are unloaded, the runner and the agent could start VMs.
        _actions_runner(),
        _job(),
        _agent(),
        _kubeconfig(),
        _log_rotation(),
        _node_exporter(),
        _resolver(),
        _tailscale(),
        _dhcp_leases(),
        _firewall(),
        _build_environment(),
        *([] if keep_tart else [_tart()]),
        _stamps(),
        _auto_login(user),
        _sudo(user),
    ]


def of_part(part: Part) -> Step | None:
    """Return the step that removes one part; None for a part that must stay as long as the Mac is a Node."""
    factories = {
        Part.TAILSCALE: _tailscale,
        Part.RESOLVER: _resolver,
        Part.NODE_EXPORTER: _node_exporter,
        Part.LOG_ROTATION: _log_rotation,
        Part.REGISTRY_CREDENTIALS: _registry_credentials,
        Part.BUILD_ENVIRONMENT: _build_environment,
        Part.ACTIONS_RUNNER: _actions_runner,
    }
    return factories[part]() if part in factories else None


def _only_when_idle(step: RemovalStep) -> RemovalStep:
    """Allow a removal only on a Mac that runs no VMs, whether its agent is installed or not."""

    def commands(facts: Facts) -> Iterator[Command]:
        if planned := [*step.commands(facts)]:
            yield shared_probes.require_no_vms()
        yield from planned

    def refusal(facts: Facts) -> str:
        if not (shared_probes.vms_may_run(facts) and any(step.commands(facts))):
            return step.refusal(facts)
        return "VMs are running and would have no agent any more; drain the Mac first"

    return replace(
        step,
        probe_list=(*step.probe_list, shared_probes.RUNNING_VMS),
        commands=commands,
        refusal=refusal,
    )


def _actions_runner() -> RemovalStep:
    return RemovalStep(
        "actions-runner",
        "the GitHub Actions runner",
        (actions_runner_job.NOTE, actions_runner_job.WORKER, actions_runner_job.FOLDER),
        actions_runner_job.remove,
        actions_runner_job.refusal,
        actions_runner_job.removal_probes,
    )


def _build_environment() -> RemovalStep:
    return RemovalStep(
        "build-environment",
        "the environment of builds",
        build_environment.PROBES,
        build_environment.remove,
        build_environment.file_problem,
    )


def _job() -> RemovalStep:
    probe_list = tuple(_AGENT.probes())
    return _only_when_idle(RemovalStep("agent-job", "the agent's job", probe_list, _AGENT.remove))


def _agent() -> RemovalStep:
    def commands(facts: Facts) -> Iterator[Command]:
        stat = facts.stat(_BINARY)
        is_foreign = stat and stat.kind == LINK and stat.target != host.AGENT_CURRENT_BINARY
        if stat and not is_foreign:
            yield _remove(host.AGENT_BINARY)
        yield from _remove_existing(facts, *_AGENT_DATA)

    probe_list = (_BINARY, *(Stat(path) for path in _AGENT_DATA))
    return _only_when_idle(
        RemovalStep("agent", "the agent, its records and logs", probe_list, commands)
    )


def _kubeconfig() -> RemovalStep:
    def commands(facts: Facts) -> Iterator[Command]:
        entries = set(facts.result(_AGENT_FILES).text.split())
        is_ours_alone = entries <= {_name(path) for path in files}
        yield from _remove_existing(facts, *([host.AGENT_FOLDER] if is_ours_alone else files))

    files = (host.AGENT_KUBECONFIG, host.CLIENT_AUTHORITY, host.REGISTRY_CREDENTIALS)
    stats = [Stat(path) for path in (host.AGENT_FOLDER, *files)]
    return RemovalStep("kubeconfig", "the agent's kubeconfig", (*stats, _AGENT_FILES), commands)


def _registry_credentials() -> RemovalStep:
    path = host.REGISTRY_CREDENTIALS
    return RemovalStep(
        "registry-credentials",
        "the registry credentials of the agent",
        (Stat(path),),
        lambda facts: _remove_existing(facts, path),
    )


def _log_rotation() -> RemovalStep:
    files = (host.LOG_ROTATION, host.LOG_ROTATION_LOG, f"{host.LOG_ROTATION_LOG}.1")
    return _daemon("log-rotation", log_rotation.DAEMON, files)


def _node_exporter() -> RemovalStep:
    files = (
        host.NODE_EXPORTER_INCOMING,
        host.NODE_EXPORTER_BINARY,
        host.NODE_EXPORTER_LOG,
        f"{host.NODE_EXPORTER_LOG}.1",
        host.NODE_EXPORTER_WRAPPER,
    )
    return _daemon("node-exporter", node_exporter.DAEMON, files)


def _daemon(name: str, daemon: LaunchDaemon, files: tuple[str, ...]) -> RemovalStep:
    """Remove a daemon and its files; the property list, which identifies the files as ours, is removed last."""

    def commands(facts: Facts) -> Iterator[Command]:
        if facts.file(ReadFile(daemon.path)) is None and not daemon.is_loaded(facts):
            return
        if daemon.is_loaded(facts):
            yield from unload(daemon.label)
        yield from _remove_existing(facts, *files, daemon.path)

    probe_list = (*daemon.probes(), Stat(daemon.path), *(Stat(path) for path in files))
    return RemovalStep(name, f"the job {daemon.label}", probe_list, commands)


def _resolver() -> RemovalStep:
    file = ReadFile(host.TAILNET_RESOLVER)

    def commands(facts: Facts) -> Iterator[Command]:
        if (facts.file(file) or b"").startswith(tailnet_resolver.CONTENT):
            yield _remove(host.TAILNET_RESOLVER)

    return RemovalStep("tailnet-resolver", "names of the tailnet", (file,), commands)


def _tailscale() -> RemovalStep:
    daemon, key_files = tailscale.DAEMON, _KEY_FILES
    folder = key_files.argv[-1]

    def commands(facts: Facts) -> Iterator[Command]:
        # Tailscale's own installer uses the same label with another property list.
        if not daemon.is_current(facts):
            return
        if daemon.is_loaded(facts):
            # Needs the running daemon.
            yield _log_out()
            yield from unload(daemon.label)
        yield from _remove_existing(facts, *_TAILSCALE_FILES)
        is_empty = set(facts.result(key_files).text.split()) <= {_name(host.TAILSCALE_AUTH_KEY)}
        yield from _remove_existing(facts, *([folder] if is_empty else []), daemon.path)

    def refusal(facts: Facts) -> str:
        if not (daemon.is_current(facts) and tailscale.is_over_tailnet(facts)):
            return ""
        return "this connection uses the tailnet that would be left; connect to another address of the Mac"

    stats = [Stat(path) for path in (*_TAILSCALE_FILES, folder, daemon.path)]
    probe_list = (*daemon.probes(), *stats, key_files, tailscale.SSH_CONNECTION)
    return RemovalStep("tailscale", "the tailnet", probe_list, commands, refusal)


def _log_out() -> Run:
    return Run(
        argv=(host.TAILSCALE_BINARY, "logout"),
        purpose="leave the tailnet",
        as_root=True,
        # A Mac that is not logged in, or cannot reach the tailnet, leaves it when its state is removed.
        accepted_codes=(0, 1),
    )


def _firewall() -> RemovalStep:
    """Remove our rules; the file that loads them is changed first, so that no boot refers to a missing file."""
    paths = (host.PF_ANCHOR_FILE, host.PF_BOOT_LOG, f"{host.PF_BOOT_LOG}.1")

    def commands(facts: Facts) -> Iterator[Command]:
        yield from _pf_block(facts)
        if firewall.is_in_force(facts):
            yield Run(
                argv=("pfctl", "-a", host.PF_ANCHOR, "-F", "all"),
                purpose="flush our rules",
                as_root=True,
            )
        yield from _remove_existing(facts, *paths)
        yield from _PACKET_FILTER.remove(facts)

    def refusal(facts: Facts) -> str:
        text = facts.file(firewall.CONF) or b""
        is_complete = len(text) < firewall.CONF.max_bytes
        if is_complete and firewall.without_block(text) == text:
            return ""
        return firewall.conf_refusal(facts)

    conf = (firewall.CONF, firewall.CONF_STAT)
    probe_list = (
        *conf,
        firewall.ANCHOR_RULES,
        *(Stat(path) for path in paths),
        *_PACKET_FILTER.probes(),
    )
    return RemovalStep(
        "firewall",
        "egress rules of VMs",
        probe_list,
        commands,
        refusal,
        firewall.conf_follow_up_probes,
    )


def _dhcp_leases() -> RemovalStep:
    return RemovalStep(
        dhcp_leases.DhcpLeases.name,
        "short DHCP leases of VMs",
        (dhcp_leases.PREFERENCES, drift.STAMPS_FILE),
        dhcp_leases.remove,
    )


def _pf_block(facts: Facts) -> Iterator[Command]:
    text = facts.file(firewall.CONF) or b""
    if firewall.without_block(text) != text:
        yield Write(
            path=firewall.conf_path(facts),
            content=firewall.without_block(text),
            purpose="remove our block from the packet filter's file",
            check=("pfctl", "-n", "-f", "{}"),
            before=text,
        )


def _tart() -> RemovalStep:
    def commands(facts: Facts) -> Iterator[Command]:
        if facts.file(_WRAPPER) == tart.WRAPPER:
            # The wrapper identifies the bundle as ours, so it is removed last.
            yield from _remove_existing(facts, *_BUNDLES)
            yield _remove(host.TART_BINARY)

    bundles = [Stat(path) for path in _BUNDLES]
    return _only_when_idle(RemovalStep("tart", "tart", (_WRAPPER, *bundles), commands))


def _stamps() -> RemovalStep:
    return RemovalStep(
        "stamps",
        "the records of applied parts",
        (Stat(host.STAMPS_FOLDER),),
        lambda facts: _remove_existing(facts, host.STAMPS_FOLDER),
    )


def _auto_login(user: str) -> RemovalStep:
    setting = loginwindow.auto_login_user(user)

    def commands(facts: Facts) -> Iterator[Command]:
        current = facts.result(setting.probe)
        # The automatic login of another user stays. Without any user the password file is useless and only a risk.
        if current.code == 0 and not setting.is_set(facts):
            return
        yield from _remove_existing(facts, host.KCPASSWORD)
        # Last: while the setting exists, the next plan detects an interruption.
        if setting.is_set(facts):
            yield Run(
                argv=("defaults", "delete", setting.domain, setting.key),
                purpose=f"disable automatic login of {user}",
                as_root=True,
            )

    def refusal(facts: Facts) -> str:
        # Without a password file there is nothing to protect: after a removal sudo works no more, and the next one must not fail.
        reason = setting.read_error(facts) if facts.stat(loginwindow.PASSWORD_FILE) else ""
        advice = "make that command work, such as with `bramley host prepare`, then run this again"
        return f"whose automatic login this is cannot be read: {reason}; {advice}" if reason else ""

    probe_list = (setting.probe, loginwindow.PASSWORD_FILE)
    return RemovalStep("auto-login", "automatic login", probe_list, commands, refusal)


def _sudo(user: str) -> RemovalStep:
    file = sudo.rule_file(user)

    def commands(facts: Facts) -> Iterator[Command]:
        # The file stays if it contains other rules.
        if facts.file(file) == sudo.rule(user):
            yield _remove(file.path)

    return RemovalStep("sudo", "sudo without a password", (file,), commands)


def _remove_existing(facts: Facts, *paths: str) -> Iterator[Command]:
    """Yield the removal of each path that exists."""
    return (_remove(path) for path in paths if facts.stat(Stat(path)))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _remove(path: str) -> Remove:
    return Remove(path=path, purpose=f"remove {path}")
