"""One control plane's folder: where it is, what is written down in it, and the paths in it that others need.

The folder lies in the user's cache rather than under /tmp, since that is often memory, where durability costs nothing.
"""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from tools.kube import programs
from tools.kube.certificates import write_private
from tools.kube.flags import Options, Ports
from tools.kube.processes import ProcessRecord


class Written(msgspec.Struct, frozen=True):
    """The recorded state of an instance's last start."""

    options: Options
    ports: Ports
    processes: tuple[ProcessRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """The folder of a control plane; `control_plane` knows whether it runs."""

    folder: Path

    @classmethod
    def named(cls, name: str) -> Instance:
        """Return the instance of this name in the user's cache."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError(
                f"{name!r} is not a valid instance name: use letters, digits, dots and dashes"
            )
        return cls(programs.user_cache() / "kube" / "instances" / name)

    @property
    def lock(self) -> Path:
        """The file that is locked while the instance is started or stopped."""
        return self.folder.with_name(f".{self.folder.name}.lock")

    @property
    def pki(self) -> Path:
        """Where keys and certificates are: ca, admin, serving, kubelet-client (.crt and .key)."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.ports.apiserver}"

    @property
    def ports(self) -> Ports:
        """The ports of the last start."""
        written = self.read()
        if written is None:
            raise LookupError(f"no control plane was started in {self.folder}")
        return written.ports

    def read(self) -> Written | None:
        """Return the recorded state, or None before the first start."""
        try:
            return msgspec.json.decode((self.folder / "instance.json").read_bytes(), type=Written)
        except FileNotFoundError:
            return None

    def write(self, written: Written) -> None:
        """Write the state atomically, since a watchdog may read it at any time."""
        path = self.folder / "instance.json"
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(written))
        fresh.replace(path)

    def write_kubeconfigs(self, port: int) -> None:
        """Write the kubeconfigs of the admin and of the servers that are clients themselves."""
        self.write_kubeconfig(self.kubeconfig, "admin", port)
        for user in ("kube-controller-manager", "kube-scheduler"):
            self.write_kubeconfig(self.pki / f"{user}.yaml", user, port)

    def write_kubeconfig(self, path: Path, user: str, port: int) -> None:
        """Write one kubeconfig with everything inside, readable for its owner only."""
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority-data": inlined(self.pki / "ca.crt"),
        }
        identity = {
            "client-certificate-data": inlined(self.pki / f"{user}.crt"),
            "client-key-data": inlined(self.pki / f"{user}.key"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def inlined(path: Path) -> str:
    """Return the content of a file in base64, as kubeconfigs contain it."""
    return base64.b64encode(path.read_bytes()).decode()


def fresh_name(purpose: str) -> str:
    """Return a name that no other process uses, for parallel runs."""
    return f"{purpose}-{os.getpid()}-{os.urandom(3).hex()}"
