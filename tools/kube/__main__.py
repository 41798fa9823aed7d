"""The command line: `python -m tools.kube build|up|down|kubeconfig|status|path`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.kube import control_plane, go_build, probe, processes, programs
from tools.kube.flags import Options
from tools.kube.instance import Instance
from tools.kube.progress import Progress


def parser() -> argparse.ArgumentParser:
    """Describe the commands."""
    top = argparse.ArgumentParser(prog="python -m tools.kube", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what is not in the cache yet")
    build.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(programs.PROGRAMS))
    path = commands.add_parser("path", help="print where a program is, building it if need be")
    path.add_argument("program", choices=sorted(programs.PROGRAMS))
    start = commands.add_parser("up", help="start a control plane on loopback and leave it running")
    start.add_argument("--without-controller-manager", action="store_true")
    start.add_argument("--without-scheduler", action="store_true")
    start.add_argument("--no-fsync", action="store_true", help="faster, and loses data on a crash")
    start.add_argument(
        "--extra",
        action="append",
        default=[],
        metavar="SERVER=FLAG",
        help="one more flag for a server: --extra kube-controller-manager=--node-monitor-period=1s",
    )
    stop = commands.add_parser("down", help="stop a control plane and remove its data")
    config = commands.add_parser("kubeconfig", help="print the path of the admin's kubeconfig")
    status = commands.add_parser("status", help="show the servers; fails unless all run and answer")
    for command in (start, stop, config, status):
        where = command.add_mutually_exclusive_group()
        where.add_argument("--name", default="default", help="the instance's name in the cache")
        where.add_argument("--dir", type=Path, help="a folder to keep the instance in instead")
    return top


def instance_of(arguments: argparse.Namespace) -> Instance:
    """Return the instance that the arguments name."""
    chosen: Path | None = arguments.dir
    return Instance(chosen.absolute()) if chosen else Instance.named(arguments.name)


def extra_flags(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Sort SERVER=FLAG arguments by server, refusing servers that do not exist."""
    sorted_by_server: dict[str, tuple[str, ...]] = {}
    for text in pairs:
        server, _, flag = text.partition("=")
        if server not in programs.CONTROL_PLANE or not flag.startswith("--"):
            raise SystemExit(
                f"--extra must be SERVER=--flag=value with one of the servers {programs.CONTROL_PLANE}"
            )
        sorted_by_server[server] = (*sorted_by_server.get(server, ()), flag)
    return sorted_by_server


def build(arguments: argparse.Namespace) -> int:
    """Build the named programs, or all."""
    names = arguments.programs or list(programs.PROGRAMS)
    if unknown := set(names) - set(programs.PROGRAMS):
        raise SystemExit(f"unknown: {sorted(unknown)}; there are {sorted(programs.PROGRAMS)}")
    go_build.ensure(names, Progress())
    for name in names:
        print(programs.path_of(name))
    return 0


def path(arguments: argparse.Namespace) -> int:
    """Print one program's path once it exists."""
    go_build.ensure([arguments.program], Progress())
    print(programs.path_of(arguments.program))
    return 0


def up(arguments: argparse.Namespace) -> int:
    """Start an instance and print how to use it."""
    options = Options(
        controller_manager=not arguments.without_controller_manager,
        scheduler=not arguments.without_scheduler,
        durable=not arguments.no_fsync,
        extra=extra_flags(arguments.extra),
    )
    instance = instance_of(arguments)
    control_plane.up(instance, options, Progress())
    print(f"{instance.server} is ready; try:")
    print(f"  {programs.path_of('kubectl')} --kubeconfig {instance.kubeconfig} get namespaces")
    return 0


def down(arguments: argparse.Namespace) -> int:
    """Stop an instance, if there is one."""
    existed = control_plane.down(instance_of(arguments))
    print("stopped and removed" if existed else "there was none")
    return 0


def kubeconfig(arguments: argparse.Namespace) -> int:
    """Print where the kubeconfig is."""
    instance = instance_of(arguments)
    if not instance.kubeconfig.exists():
        raise SystemExit(
            f"no control plane in {instance.folder}; start one: python -m tools.kube up"
        )
    print(instance.kubeconfig)
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Show each server; the exit code is 0 only if all of them work."""
    instance = instance_of(arguments)
    written = instance.read()
    if written is None or not written.processes:
        print(f"nothing runs in {instance.folder}")
        return 1
    for record in written.processes:
        alive = processes.is_running(record)
        held = f"{processes.resident_bytes(record.pid) / 1e6:.0f} MB" if alive else "-"
        print(f"{record.name:<24} pid {record.pid:<8} {'running' if alive else 'DEAD':<8} {held}")
    context = probe.admin_context(instance.pki)
    code, answer = probe.get(written.ports.apiserver, "/readyz", context)
    print(f"{instance.server}/readyz {code} {answer.decode(errors='replace')[:200]}")
    return 0 if control_plane.is_running_completely(written) and code == 200 else 1


COMMANDS = {
    "build": build,
    "path": path,
    "up": up,
    "down": down,
    "kubeconfig": kubeconfig,
    "status": status,
}


def main() -> int:
    """Run one command; errors that the user can fix are printed without a traceback."""
    arguments = parser().parse_args()
    try:
        return COMMANDS[arguments.command](arguments)
    except (go_build.BuildFailed, control_plane.StartFailed, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
