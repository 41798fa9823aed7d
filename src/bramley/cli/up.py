"""`bramley up`: everything on one machine; for now a cluster in one process, and what to try with it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bramley.api.names import groups
from bramley.cli.apiserver import effective, shown
from bramley.cli.options import (
    LISTEN,
    AuditLog,
    DataDir,
    Format,
    KubeconfigOut,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    ShowSettings,
    show,
)

if TYPE_CHECKING:
    from bramley.app.apiserver import Settings
    from bramley.app.listening import Address

POOL = f"""\
apiVersion: {groups.RUNNERS}/{groups.VERSION}
kind: RunnerPool
metadata:
  name: demo
spec:
  replicas: 2
  image: ghcr.io/example/macos-runner:latest
  fleetSelector: demo
  dispatchLabel: demo-macos
  runnerLabels: [self-hosted, macOS, ARM64]
"""

# What a Mac's agent will say of itself; until then a person may say it.
NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: mac-1
  labels: {kubernetes.io/hostname: mac-1, kubernetes.io/os: darwin}
status:
  capacity: {cpu: "8", memory: 16Gi, pods: "10"}
  allocatable: {cpu: "8", memory: 16Gi, pods: "10"}
  conditions: [{type: Ready, status: "True"}]
"""

_SCHEDULED = "--for condition=PodScheduled"


def up(
    context: typer.Context,
    *,
    data_dir: DataDir = None,
    listen: Listen = LISTEN,
    kubeconfig_out: KubeconfigOut = None,
    audit_log: AuditLog = None,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    show_settings: ShowSettings = False,
) -> None:
    """Start everything on this machine and print what to try next.

    \b
    Examples:
      bramley up
      bramley up --data-dir ./data --listen 127.0.0.1:0 --kubeconfig-out ./kubeconfig
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    settings = effective(data_dir, listen, kubeconfig_out, audit_log)
    if show_settings:
        show(context, shown(settings, log_level, log_format))
        return
    from bramley.app import apiserver as process
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    process.run(settings, started=lambda address: _welcome(address, settings))


def next_steps(kubeconfig: Path, program: str) -> Iterator[tuple[str, str]]:
    """Yield what to try, as a sentence and the command for it; in this order each one works."""
    yield (
        "Use this server in a second terminal",
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}",
    )
    yield "See what is there", "kubectl get namespaces"
    yield (
        "Run something, by a Deployment",
        "kubectl create deployment web --image nginx --replicas 2",
    )
    yield "Pretend that a Mac joined", f"kubectl apply -f - <<'END'\n{NODE}END"
    yield "Wait until the scheduler has seen it", f"kubectl wait pod -l app=web {_SCHEDULED}"
    yield "See where its Pods went", "kubectl get pods -o wide"
    yield "Roll it over to another image", "kubectl set image deployment/web nginx=nginx:2"
    yield "Clear the Node, without waiting for Pods to stop", "kubectl drain mac-1 --grace-period 0"
    yield "Ask what somebody may do", "kubectl auth can-i create pods"
    yield "Let it all go", "kubectl delete deployment/web node/mac-1"
    yield "Teach it our kinds", f"{program} crds | kubectl apply -f -"
    yield "Ask for a pool of runners", f"kubectl apply -f - <<'END'\n{POOL}END"
    yield "Watch it in the background", "kubectl get runnerpools --watch &"
    patch = """kubectl patch runnerpool demo --type merge --patch '{"spec":{"replicas":3}}'"""
    yield "Change it, and see the watch tell", patch
    yield "Let it go", "kubectl delete runnerpool demo"
    yield "End the watch", "kill $!"


def _welcome(address: Address, settings: Settings) -> None:
    facts = [
        ("Serving", f"the Kubernetes API at {address.url}"),
        ("Data", str(settings.data_dir)),
        ("Kubeconfig", f"{settings.kubeconfig} (holds the administrator's token)"),
    ]
    steps = list(next_steps(settings.kubeconfig, _program()))
    if sys.stdout.isatty():
        _print_painted(facts, steps)
    else:
        _print_plain(facts, steps)


def _print_plain(facts: list[tuple[str, str]], steps: list[tuple[str, str]]) -> None:
    for name, value in facts:
        typer.echo(f"{name:<10}  {value}")
    for sentence, command in steps:
        typer.echo(f"\n# {sentence}\n{command}")
    typer.echo("\n# Stop with Ctrl-C; the data stays and is there with the next start")
    sys.stdout.flush()


def _print_painted(facts: list[tuple[str, str]], steps: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for name, value in facts:
        console.print(Text.assemble((f"{name:<10}  ", "bold green"), value), soft_wrap=True)
    for sentence, command in steps:
        console.print()
        console.print(Text(f"# {sentence}", "dim"))
        # Commands are never wrapped or indented: what is copied must run.
        console.print(Text(command, "cyan"), soft_wrap=True)
    console.print()
    stop = Text("# Stop with Ctrl-C; the data stays and is there with the next start", "dim")
    console.print(stop, soft_wrap=True)


def _program() -> str:
    """Return how the person in front can call us: by name if it is on the PATH, else by its place."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("bramley")
    return "bramley" if found and Path(found).absolute() == own else shlex.quote(str(own))
