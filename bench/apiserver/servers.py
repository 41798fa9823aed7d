"""The two servers under test: Bramley's, and kube-apiserver on etcd.

Each runs in an instance folder of `tools.kube`, whose watchdog stops it if the benchmark is killed. The folder is in the
user's cache: under /tmp, which is often memory, durable writes would cost nothing.
"""

from __future__ import annotations

import base64
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml

from tools.kube import certificates, control_plane, flags, probe, processes, programs
from tools.kube.certificates import write_private
from tools.kube.flags import Options, Ports
from tools.kube.instance import Instance, Written, fresh_name
from tools.kube.processes import ProcessRecord

START_TIMEOUT_SECONDS = 120.0
BARE = Options(controller_manager=False, scheduler=False)
NO_PORTS = Ports(0, 0, 0)


class StartFailed(Exception):
    """A server did not become ready; the message carries the end of its log."""


class Server(Protocol):
    """A server that can be restarted on the same data, and loaded."""

    @property
    def name(self) -> str:
        """Return its name in the results."""
        ...

    @property
    def protocols(self) -> tuple[str, ...]:
        """Return the protocols to try; the faster one counts."""
        ...

    def start(self) -> float:
        """Start it and return the seconds from the first process to the first good /readyz."""
        ...

    def stop(self) -> None:
        """Stop it and keep its data."""
        ...

    def access(self) -> list[str]:
        """Return the load generator's flags for it."""
        ...

    def resident_bytes(self) -> int:
        """Return the memory its processes hold together."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    """A folder and the processes that run in it, recorded for the watchdog."""

    instance: Instance

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.instance.folder

    def run(
        self, name: str, argv: Sequence[str], env: dict[str, str] | None = None
    ) -> ProcessRecord:
        """Start a process in the folder."""
        record = processes.start(name, argv, folder=self.folder, env=env)
        written = self.instance.read() or Written(BARE, NO_PORTS)
        changed = (*written.processes, record)
        self.instance.write(msgspec.structs.replace(written, processes=changed))
        return record

    def records(self) -> tuple[ProcessRecord, ...]:
        """Return the started processes."""
        written = self.instance.read()
        return written.processes if written else ()

    def resident_bytes(self) -> int:
        """Return the memory of all processes."""
        return sum(processes.resident_bytes(record.pid) for record in self.records())

    def stop(self) -> None:
        """Stop all processes, the last started first."""
        control_plane.stop_servers(self.instance)


@contextmanager
def process_folder(purpose: str) -> Iterator[ProcessFolder]:
    """Create a folder for processes; both are gone when the context ends, also when this process is killed."""
    instance = Instance.named(fresh_name(f"bench-{purpose}"))
    instance.folder.mkdir(mode=0o700, parents=True)
    with control_plane.watched(instance):
        try:
            yield ProcessFolder(instance)
        finally:
            control_plane.down(instance)


class Bramley:
    """The embedded server: one process, HTTP/1.1, a bearer token; without controllers, because the other server has none either."""

    protocols = ("http1",)

    def __init__(
        self,
        process_folder: ProcessFolder,
        *,
        wrapped_by: Sequence[str] = (),
        has_controllers: bool = False,
    ) -> None:
        self.name = "bramley with controllers" if has_controllers else "bramley"
        self.flags = () if has_controllers else ("--no-controllers",)
        self.process_folder = process_folder
        self.wrapped_by = wrapped_by
        self.port = 0

    def start(self) -> float:
        """Start `bramley apiserver` and wait for it."""
        (self.port,) = control_plane.free_ports(1)
        started = time.perf_counter()
        record = self.process_folder.run(
            "bramley", [*self.command(), *self.arguments()], env=quiet()
        )
        ready = responds(self.port, probe.serving_only_context())
        wait_for(ready, record)
        return time.perf_counter() - started

    def command(self) -> list[str]:
        """Return the command: the installed script, or a profiler around it."""
        script = str(Path(sys.executable).parent / "bramley")
        return [sys.executable, *self.wrapped_by] if self.wrapped_by else [script]

    def arguments(self) -> list[str]:
        """Return the arguments after the program."""
        folder = self.process_folder.folder
        listen = ["--listen", f"127.0.0.1:{self.port}"]
        kubeconfig = ["--kubeconfig-out", str(folder / "kubeconfig")]
        return ["apiserver", "--data-dir", str(folder / "data"), *listen, *kubeconfig, *self.flags]

    def stop(self) -> None:
        """Stop it."""
        self.process_folder.stop()

    def resident_bytes(self) -> int:
        """Return its memory."""
        return self.process_folder.resident_bytes()

    def access(self) -> list[str]:
        """Return the flags with authority and token of the kubeconfig that it wrote."""
        config: Any = yaml.safe_load((self.process_folder.folder / "kubeconfig").read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority, token = (
            self.process_folder.folder / "ca.crt",
            self.process_folder.folder / "token",
        )
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        write_private(token, user["token"].encode())
        return ["-server", cluster["server"], "-ca", str(authority), "-token-file", str(token)]


class Kubernetes:
    """kube-apiserver and etcd with its defaults, durable, reached by HTTP/1.1 or HTTP/2 with a client certificate."""

    name = "kubernetes"
    protocols = ("http1", "http2")

    def __init__(self, process_folder: ProcessFolder) -> None:
        self.process_folder = process_folder
        self.ports = NO_PORTS

    def start(self) -> float:
        """Start etcd and, as soon as it listens, kube-apiserver, and wait for it."""
        folder = self.process_folder.folder
        certificates.ensure(folder / "pki")
        context = probe.admin_context(folder / "pki")
        self.ports = Ports(*control_plane.free_ports(3))
        (folder / flags.ETCD_SOCKET).unlink(missing_ok=True)
        started = time.perf_counter()
        wait_for((folder / flags.ETCD_SOCKET).is_socket, self.run("etcd"))
        wait_for(responds(self.ports.apiserver, context), self.run("kube-apiserver"))
        return time.perf_counter() - started

    def run(self, server: str) -> ProcessRecord:
        """Start one of its servers."""
        arguments = flags.command_line(server, BARE, self.ports)
        return self.process_folder.run(server, [str(programs.path_of(server)), *arguments])

    def stop(self) -> None:
        """Stop both."""
        self.process_folder.stop()

    def resident_bytes(self) -> int:
        """Return the memory of both."""
        return self.process_folder.resident_bytes()

    def access(self) -> list[str]:
        """Return the flags with the admin certificate."""
        pki = self.process_folder.folder / "pki"
        files = ["-ca", str(pki / "ca.crt"), "-cert", str(pki / "admin.crt")]
        server = f"https://127.0.0.1:{self.ports.apiserver}"
        return ["-server", server, *files, "-key", str(pki / "admin.key")]


def quiet() -> dict[str, str]:
    """Return an environment in which Python runs as installed, not as a developer may have set it."""
    return {name: "" for name in ("PYTHONDEVMODE", "PYTHONASYNCIODEBUG") if name in os.environ}


def responds(port: int, context: ssl.SSLContext) -> Callable[[], bool]:
    """Return a predicate: whether the server on a port is ready."""
    return lambda: probe.get(port, "/readyz", context)[0] == 200


def wait_for(ready: Callable[[], bool], record: ProcessRecord) -> None:
    """Poll every few milliseconds until a predicate holds."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not ready():
        if not processes.is_running(record) or time.monotonic() > deadline:
            raise StartFailed(f"{record.name} did not start:\n{processes.tail(record.log)}")
        time.sleep(0.005)
