"""Starts and stops an instance: certificates, then servers in order, each waited for; everything is stopped on failure.

Starting an instance that already runs with these options changes nothing; otherwise it is restarted with its data kept.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tools.kube import certificates, flags, go_build, probe, processes, programs
from tools.kube.flags import Options, Ports
from tools.kube.instance import Instance, Written, fresh_name
from tools.kube.processes import ProcessRecord
from tools.kube.progress import Progress

START_TIMEOUT_SECONDS = 180.0
TRIES = 3
PORT_TAKEN = "address already in use"
# Log lines of a server that exited because its dependency did not answer in time: etcd within 20 s, the API within 10.
GAVE_UP = ("context deadline exceeded", "Client.Timeout exceeded", "TLS handshake timeout")


class StartFailed(Exception):
    """A server did not start; the message contains the end of its log."""


class TransientStartFailure(StartFailed):
    """A transient failure: another process took a port, or a busy machine was too slow; the start is retried."""


def up(instance: Instance, options: Options, progress: Progress | None = None) -> Written:
    """Start the instance with these options and return its state."""
    go_build.ensure((*options.servers, "kubectl"), progress)
    with go_build.exclusively(instance.lock):
        written = instance.read()
        if written is not None and written.options == options and is_running_completely(written):
            return written
        return start_with_free_ports(instance, options, progress or Progress())


def is_running_completely(written: Written) -> bool:
    """Return whether all servers of the instance are alive."""
    names = tuple(record.name for record in written.processes)
    return names == written.options.servers and all(map(processes.is_running, written.processes))


def start_with_free_ports(instance: Instance, options: Options, progress: Progress) -> Written:
    """Start everything; retry with other ports if one was taken, or if a server exited too early."""
    for last in (number == TRIES for number in range(1, TRIES + 1)):
        stop_servers(instance)
        try:
            with progress.step("starting the control plane"):
                return start(instance, options)
        except TransientStartFailure:
            stop_servers(instance)
            if last:
                raise
        except BaseException:
            stop_servers(instance)
            raise
    raise AssertionError("the last try returns or raises")


def start(instance: Instance, options: Options) -> Written:
    """Start the servers in order, waiting for each."""
    instance.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificates.ensure(instance.pki)
    (instance.folder / flags.ETCD_SOCKET).unlink(missing_ok=True)
    written = Written(options, Ports(*free_ports(3)))
    instance.write_kubeconfigs(written.ports.apiserver)
    for name in options.servers:
        written = start_server(instance, written, name)
    if options.controller_manager:
        context = probe.admin_context(instance.pki)
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(
            lambda: probe.get(written.ports.apiserver, path, context)[0] == 200, written.processes
        )
    return written


def start_server(instance: Instance, written: Written, name: str) -> Written:
    """Start one server, record it, and wait until it answers."""
    arguments = flags.command_line(name, written.options, written.ports)
    command = [str(programs.path_of(name)), *arguments]
    # Servers for tests use more memory and less time for garbage collection; servers for benchmarks use the defaults.
    env = None if written.options.durable else {"GOGC": "400"}
    record = processes.start(name, command, folder=instance.folder, env=env)
    written = msgspec.structs.replace(written, processes=(*written.processes, record))
    instance.write(written)
    wait_until(readiness(name, instance, written.ports), (record,))
    return written


def readiness(name: str, instance: Instance, ports: Ports) -> Callable[[], bool]:
    """Return the check whether a server is ready."""
    own = probe.serving_only_context()
    answers: dict[str, Callable[[], bool]] = {
        "etcd": (instance.folder / flags.ETCD_SOCKET).is_socket,
        "kube-apiserver": lambda: apiserver_is_ready(instance, ports),
        "kube-controller-manager": lambda: is_ok(
            probe.get(ports.controller_manager, "/healthz", own)
        ),
        "kube-scheduler": lambda: is_ok(probe.get(ports.scheduler, "/healthz", own)),
    }
    return answers[name]


def apiserver_is_ready(instance: Instance, ports: Ports) -> bool:
    """Return whether the API server is ready."""
    return is_ok(probe.get(ports.apiserver, "/readyz", probe.admin_context(instance.pki)))


def is_ok(answer: tuple[int, bytes]) -> bool:
    """Return whether a health response is OK."""
    return answer == (200, b"ok")


def wait_until(done: Callable[[], bool], servers: tuple[ProcessRecord, ...]) -> None:
    """Wait for a condition that these servers fulfil; fail with their logs if they exit or take too long."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not done():
        for server in servers:
            if not processes.is_running(server):
                raise failure(server, "ended while starting")
        if time.monotonic() > deadline:
            raise failure(servers[-1], f"was not ready within {START_TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.05)


def failure(server: ProcessRecord, what: str) -> StartFailed:
    """Return the error for a server that failed, with the end of its log."""
    log_tail = processes.tail(server.log)
    kind = (
        TransientStartFailure
        if any(reason in log_tail for reason in (PORT_TAKEN, *GAVE_UP))
        else StartFailed
    )
    return kind(f"{server.name} {what}; its log {server.log} ends:\n{log_tail}")


def free_ports(count: int) -> list[int]:
    """Return loopback ports that were free a moment ago, all different."""
    with ExitStack() as sockets_open:
        sockets = [sockets_open.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def stop_servers(instance: Instance) -> None:
    """Stop the servers of the instance, clients before servers."""
    written = instance.read()
    if written is not None:
        processes.stop(written.processes[::-1])
        instance.write(msgspec.structs.replace(written, processes=()))


def down(instance: Instance) -> bool:
    """Stop an instance and remove its folder; return whether there was one."""
    with go_build.exclusively(instance.lock):
        existed = instance.folder.exists()
        stop_servers(instance)
        shutil.rmtree(instance.folder, ignore_errors=True)
        instance.lock.unlink(missing_ok=True)
    return existed


@dataclass(frozen=True, slots=True)
class RealCluster:
    """A running control plane, for tests and benchmarks."""

    instance: Instance
    written: Written

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.instance.kubeconfig

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.instance.server

    @property
    def pki(self) -> Path:
        """The folder of ca.crt, admin.crt and admin.key."""
        return self.instance.pki

    def process(self, name: str) -> ProcessRecord:
        """Return one of its servers by name."""
        return next(record for record in self.written.processes if record.name == name)

    def client_certificate(self, user: str, *, groups: tuple[str, ...] = ()) -> certificates.Pair:
        """Return a certificate for another client, such as a Node's agent."""
        return certificates.Authority.load(self.pki).client(user, groups=groups)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the admin and return what it prints."""
        # A separate discovery cache: another cluster may have had this port before.
        own = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.instance.folder / 'cache'}")
        command = [str(programs.path_of("kubectl")), *own, *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def running(
    options: Options, *, purpose: str, progress: Progress | None = None
) -> Iterator[RealCluster]:
    """Run a separate control plane until the block ends or this process is killed."""
    instance = Instance.named(fresh_name(purpose))
    with watched(instance):
        try:
            yield RealCluster(instance, up(instance, options, progress))
        finally:
            down(instance)


@contextmanager
def watched(instance: Instance) -> Iterator[None]:
    """Start a process that stops the instance if this one dies without doing so."""
    command = [sys.executable, "-m", "tools.kube.watchdog", str(instance.folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=root, start_new_session=True
    ):
        yield
