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
def running(kubeconfig: Path, folder: Path) -> Iterator[ProcessRecord]:
    """Run it as the user of a kubeconfig until the block ends; the definitions must be installed."""
    Authority.create().server("localhost", names=["localhost"], addresses=["127.0.0.1"]).write(
        folder, "tls"
    )
    webhook_port, health_port = control_plane.free_ports(2)
    flags = {
        "kubeconfig": kubeconfig,
        "webhook-cert-dir": folder,
        "webhook-port": webhook_port,
        "diagnostics-address": "127.0.0.1:0",
        "health-addr": f"127.0.0.1:{health_port}",
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [str(programs.path_of(NAME)), "--insecure-diagnostics", *arguments]
    record = processes.start(NAME, command, folder=folder)
    try:
        wait_until_ready(record, health_port)
        yield record
    finally:
        processes.stop([record])


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
