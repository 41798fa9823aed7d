"""`bramley up`: everything on one machine: a cluster in one process, simulated Macs beside it, and what to try with them."""

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
    MACS,
    AuditLog,
    Bootstrap,
    DataDir,
    Format,
    KubeconfigOut,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    Macs,
    ShowSettings,
    show,
)
from bramley.cli.screen import Screen

if TYPE_CHECKING:
    from bramley.app.apiserver import Settings
    from bramley.app.up import MacSettings

MACS_FOLDER = "macs"
BARE_MACS_FOLDER = "bootstrapped-macs"
# As `bramley up` calls the Pod that it starts.
SAMPLE = "sample"

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

# A machine that nobody runs anything on; enough for the scheduler.
NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: pretended-1
  labels: {kubernetes.io/hostname: pretended-1, kubernetes.io/os: linux}
status:
  capacity: {cpu: "8", memory: 16Gi, pods: "10"}
  allocatable: {cpu: "8", memory: 16Gi, pods: "10"}
  conditions: [{type: Ready, status: "True"}]
"""

_SCHEDULED = "--for condition=PodScheduled"
_RUNNING = "--for 'jsonpath={.status.phase}=Running' --timeout 2m"


def up(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    *,
    data_dir: DataDir = None,
    listen: Listen = LISTEN,
    kubeconfig_out: KubeconfigOut = None,
    audit_log: AuditLog = None,
    macs: Macs = MACS,
    bootstrap: Bootstrap = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    show_settings: ShowSettings = False,
) -> None:
    """Start everything on this machine and print what to try next.

    Simulated Macs join with real agents, and one of them runs a sample Pod; no Mac is needed, and none is touched.

    \b
    Examples:
      bramley up
      bramley up --macs 1
      bramley up --macs 1 --bootstrap
      bramley up --data-dir ./data --listen 127.0.0.1:0 --kubeconfig-out ./kubeconfig
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    settings = effective(data_dir, listen, kubeconfig_out, audit_log)
    if show_settings:
        show(
            context,
            {**shown(settings, log_level, log_format), "macs": macs, "bootstrap": bootstrap},
        )
        return
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    # Without any there is no kind of them, either.
    chosen = mac_settings(settings.data_dir, macs, bootstrap=bootstrap and macs > 0)
    if chosen.are_of_concern:
        _with_macs(settings, chosen)
    else:
        _alone(settings)


def _alone(settings: Settings) -> None:
    from bramley.app import apiserver as process

    process.run(settings, started=_screen(settings, 0).started)


def _with_macs(settings: Settings, macs: MacSettings) -> None:
    from bramley.app import up as process

    screen = _screen(settings, macs.count)
    process.run(process.Settings(settings, macs), process.Teller(screen.started, screen.hear))


def mac_settings(data: Path, count: int, *, bootstrap: bool) -> MacSettings:
    """Return where the Macs are kept below the data folder, and where those of the other kind are."""
    from bramley.app.up import MacSettings

    own, other = data / MACS_FOLDER, data / BARE_MACS_FOLDER
    if bootstrap:
        own, other = other, own
    return MacSettings(own, count, bootstrap=bootstrap, elsewhere=other)


def _screen(settings: Settings, macs: int) -> Screen:
    return Screen(settings, macs=macs, steps=next_steps(settings.kubeconfig, _program(), macs=macs))


def next_steps(kubeconfig: Path, program: str, *, macs: int = MACS) -> Iterator[tuple[str, str]]:
    """Yield what to try, as a sentence and the command for it; in this order each one works."""
    yield (
        "Use this server in a second terminal",
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}",
    )
    yield "See what is there", "kubectl get namespaces"
    if macs:
        yield from _steps_with_macs()
    yield from _steps_with_a_deployment()
    yield "Teach it our kinds", f"{program} crds | kubectl apply -f -"
    yield "Ask for a pool of runners", f"kubectl apply -f - <<'END'\n{POOL}END"
    yield "Watch it in the background", "kubectl get runnerpools --watch &"
    patch = """kubectl patch runnerpool demo --type merge --patch '{"spec":{"replicas":3}}'"""
    yield "Change it, and see the watch tell", patch
    yield "Let it go", "kubectl delete runnerpool demo"
    yield "End the watch", "kill $!"


def _steps_with_macs() -> Iterator[tuple[str, str]]:
    yield "See the Macs", "kubectl get nodes -o wide"
    yield (
        "Watch the sample Pod in the background: a virtual machine of its own",
        "kubectl get pods -w &",
    )
    yield "Wait until it works", f"kubectl wait pod {SAMPLE} {_RUNNING}"
    yield "Read what it says; -f follows it to its end", f"kubectl logs {SAMPLE}"
    yield "See where it is and what became of it", f"kubectl describe pod {SAMPLE}"
    top = f"for try in $(seq 90); do kubectl top pod {SAMPLE} 2>/dev/null && break; sleep 1; done"
    yield "See what it uses, as soon as that was measured", top
    yield "End the watch", "kill $!"
    yield "End it early: its machine is shut down and deleted", f"kubectl delete pod {SAMPLE}"


def _steps_with_a_deployment() -> Iterator[tuple[str, str]]:
    deployment = "kubectl create deployment web --image nginx --replicas 2"
    yield "Ask for something by a Deployment", deployment
    yield (
        "Pretend that a machine joined that could run it",
        f"kubectl apply -f - <<'END'\n{NODE}END",
    )
    yield "Wait until the scheduler has seen it", f"kubectl wait pod -l app=web {_SCHEDULED}"
    yield "See where its Pods went", "kubectl get pods -o wide"
    yield "Roll it over to another image", "kubectl set image deployment/web nginx=nginx:2"
    drain = "kubectl drain pretended-1 --grace-period 0"
    yield "Clear the Node, without waiting for Pods to stop", drain
    yield "Ask what somebody may do", "kubectl auth can-i create pods"
    yield "Let it all go", "kubectl delete deployment/web node/pretended-1"


def _program() -> str:
    """Return how the person in front can call us: by name if it is on the PATH, else by its place."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("bramley")
    return "bramley" if found and Path(found).absolute() == own else shlex.quote(str(own))
