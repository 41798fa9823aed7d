"""The command lines of the control plane's servers, as pure functions of where they run.

Paths are relative to the instance's folder, in which every server is started: a Unix socket's name has little room.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ETCD_SOCKET = "etcd.sock"
SERVICE_RANGE = "10.0.0.0/24"
ISSUER = "https://kubernetes.default.svc.cluster.local"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of an instance and their options; `extra` adds flags per server, and the last value of a flag counts."""

    controller_manager: bool = True
    scheduler: bool = True
    durable: bool = True
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that run, in the order they start."""
        optional = [
            ("kube-controller-manager", self.controller_manager),
            ("kube-scheduler", self.scheduler),
        ]
        return ("etcd", "kube-apiserver", *(name for name, enabled in optional if enabled))


class Ports(msgspec.Struct, frozen=True):
    """The loopback ports of one start."""

    apiserver: int
    controller_manager: int
    scheduler: int


def command_line(server: str, options: Options, ports: Ports) -> list[str]:
    """Return the flags of one server, the caller's own last."""
    made = {
        "etcd": lambda: etcd(durable=options.durable),
        "kube-apiserver": lambda: apiserver(ports, service_accounts=options.controller_manager),
        "kube-controller-manager": lambda: controller_manager(ports),
        "kube-scheduler": lambda: scheduler(ports),
    }
    return [*made[server](), *options.extra.get(server, ())]


def etcd(*, durable: bool) -> list[str]:
    """Return etcd's flags: it listens on Unix sockets only, without ports and other users."""
    peers = "unix://peer.sock:0"
    return [
        "--name=only",
        "--data-dir=etcd",
        f"--listen-client-urls=unix://{ETCD_SOCKET}",
        f"--advertise-client-urls=unix://{ETCD_SOCKET}:0",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=only={peers}",
        "--log-level=warn",
        *([] if durable else ["--unsafe-no-fsync"]),
    ]


def apiserver(ports: Ports, *, service_accounts: bool) -> list[str]:
    """Serve with the defaults of a plain cluster; without service accounts' controller, without their admission."""
    return [
        f"--etcd-servers=unix://{ETCD_SOCKET}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.apiserver}",
        "--tls-cert-file=pki/serving.crt",
        "--tls-private-key-file=pki/serving.key",
        "--client-ca-file=pki/ca.crt",
        # The other servers refuse to check callers without these; no certificate of that name exists.
        "--requestheader-client-ca-file=pki/ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--endpoint-reconciler-type=none",
        f"--service-account-issuer={ISSUER}",
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        "--kubelet-client-certificate=pki/kubelet-client.crt",
        "--kubelet-client-key=pki/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        "--allow-privileged=true",
        *([] if service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
    ]


def controller_manager(ports: Ports) -> list[str]:
    """Run every default controller, at once and alone."""
    return [
        "--kubeconfig=pki/kube-controller-manager.yaml",
        "--authentication-kubeconfig=pki/kube-controller-manager.yaml",
        "--authorization-kubeconfig=pki/kube-controller-manager.yaml",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controller_manager}",
        "--cert-dir=pki/kube-controller-manager",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--service-account-private-key-file=pki/service-account.key",
        "--root-ca-file=pki/ca.crt",
        "--client-ca-file=pki/ca.crt",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
    ]


def scheduler(ports: Ports) -> list[str]:
    """Run the default scheduler, alone."""
    return [
        "--kubeconfig=pki/kube-scheduler.yaml",
        "--authentication-kubeconfig=pki/kube-scheduler.yaml",
        "--authorization-kubeconfig=pki/kube-scheduler.yaml",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.scheduler}",
        "--cert-dir=pki/kube-scheduler",
        "--client-ca-file=pki/ca.crt",
        "--leader-elect=false",
    ]
