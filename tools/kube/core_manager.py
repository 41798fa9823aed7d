"""Cluster API's core manager: its definitions, and the process, on any Kubernetes API.

Its webhooks are not registered, so nothing is defaulted: objects have to be written in full. Clients of the objects it manages
are tests; nothing of this ships in a package.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.kube import control_plane, go_build, processes, programs
from tools.kube.certificates import Authority
from tools.kube.flags import Options, Ports
from tools.kube.instance import Instance, Written, fresh_name
from tools.kube.processes import ProcessRecord

NAME = "cluster-api"
START_TIMEOUT_SECONDS = 120.0


def definitions() -> list[Path]:
    """Return the files of its CustomResourceDefinitions, which are cached beside the program."""
    folder = programs.bin_folder(programs.CLUSTER_API).parent / "crds"
    with go_build.exclusively(programs.user_cache() / "kube" / "build.lock"):
        if not folder.exists():
            copied = folder.with_name("crds.copied")
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(module_folder() / "config" / "crd" / "bases", copied)
            copied.replace(folder)
    return sorted(folder.glob("*.yaml"))


def module_folder() -> Path:
    """Return the folder of Cluster API's module in Go's cache."""
    module = programs.CLUSTER_API.pinned or ""
    go = [str(go_build.find_go())]
    options = {"cwd": programs.CLUSTER_API.folder, "env": go_build.build_environment()}
    subprocess.run([*go, "mod", "download", module], check=True, timeout=600, **options)  # type: ignore[call-overload]
    found = subprocess.check_output(
        [*go, "list", "-m", "-f", "{{.Dir}}", module],
        text=True,
        timeout=60,
        **options,  # type: ignore[call-overload]
    )
    return Path(found.strip())


@contextmanager
def running(kubeconfig: Path) -> Iterator[ProcessRecord]:
    """Run it as the user of a kubeconfig until the block ends or this process is killed; the definitions must be installed."""
    instance = Instance.named(fresh_name(NAME))
    instance.folder.mkdir(mode=0o700, parents=True)
    with control_plane.watched(instance):
        try:
            yield start(kubeconfig, instance)
        finally:
            control_plane.down(instance)


def start(kubeconfig: Path, instance: Instance) -> ProcessRecord:
    """Start the process, record it, and wait until it reconciles."""
    serving = Authority.create().server("localhost", names=["localhost"], addresses=["127.0.0.1"])
    serving.write(instance.folder, "tls")
    webhook_port, health_port = control_plane.free_ports(2)
    flags = {
        "kubeconfig": kubeconfig,
        "webhook-cert-dir": instance.folder,
        "webhook-port": webhook_port,
        "diagnostics-address": "127.0.0.1:0",
        "health-addr": f"127.0.0.1:{health_port}",
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [str(programs.path_of(NAME)), "--insecure-diagnostics", *arguments]
    record = processes.start(NAME, command, folder=instance.folder)
    # Recorded like the servers of a control plane, so that the watchdog can stop it.
    instance.write(Written(Options(), Ports(0, 0, 0), (record,)))
    wait_until_ready(record, health_port)
    return record


def wait_until_ready(record: ProcessRecord, port: int) -> None:
    """Wait until it reconciles; raise with the end of its log if it does not."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not is_ready(port):
        if not processes.is_running(record) or time.monotonic() > deadline:
            raise control_plane.StartFailed(
                f"{NAME} did not start; its log {record.log} ends:\n{processes.tail(record.log)}"
            )
        time.sleep(0.1)


def is_ready(port: int) -> bool:
    """Return whether the health port reports that it is ready."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        return int(answer.status) == 200
    return False
