"""Which programs there are, from which Go module, in which version, and where their binaries are cached.

Everything here is pure arithmetic over the committed Go files: nothing is built or started.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
VERSION_PACKAGE = "k8s.io/component-base/version"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Module:
    """One committed Go module; `pinned` is the requirement whose version names the build."""

    name: str
    pinned: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of its go.mod."""
        return SOURCES / self.name

    @property
    def version(self) -> str:
        """The version of what it builds, as go.mod requires it; our own programs have none."""
        return required_version(self.go_mod, self.pinned) if self.pinned else "own"

    @property
    def go_mod(self) -> str:
        """The text of its go.mod."""
        return (self.folder / "go.mod").read_text()


KUBE = Module("kube", pinned="k8s.io/kubernetes")
ETCD = Module("etcd", pinned="go.etcd.io/etcd/server/v3")
CLUSTER_API = Module("cluster-api", pinned="sigs.k8s.io/cluster-api")
LOAD = Module("load")


@dataclass(frozen=True, slots=True)
class Program:
    """One binary: its name, the module that pins it and the Go package to build."""

    name: str
    module: Module
    package: str


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program("etcd", ETCD, "."),
        Program("kubectl", KUBE, "k8s.io/kubernetes/cmd/kubectl"),
        Program("kube-apiserver", KUBE, "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kube-controller-manager", KUBE, "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", KUBE, "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("load", LOAD, "."),
        # Cluster API's core manager.
        Program("cluster-api", CLUSTER_API, "sigs.k8s.io/cluster-api"),
    )
    if program.module.folder.is_dir()
}


def required_version(go_mod: str, module: str) -> str:
    """Return the version that a go.mod requires of one module."""
    match = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise LookupError(f"go.mod does not require {module}")
    return match.group(1)


def go_directive(go_mod: str) -> tuple[int, ...]:
    """Return the oldest Go that a go.mod admits, as numbers to compare."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", go_mod, re.MULTILINE)
    if match is None:
        raise LookupError("go.mod has no Go version")
    return tuple(int(part) for part in match.group(1).split("."))


def linker_flags(module: Module) -> str:
    """Return the linker flags that set the version in the binaries; clients fail on servers without a version."""
    if module.name != KUBE.name:
        return "-s -w"
    major, minor, _ = module.version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": module.version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(
        f"-X {VERSION_PACKAGE}.{key}={value}" for key, value in facts.items()
    )


def fingerprint(module: Module) -> str:
    """Return a hash that changes with anything that changes the binaries."""
    digest = hashlib.sha256()
    sources = [module.folder / "go.mod", module.folder / "go.sum", *module.folder.glob("*.go")]
    for path in sorted(path for path in sources if path.exists()):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    digest.update(f"{linker_flags(module)}\0{platform.system()}\0{platform.machine()}".encode())
    return digest.hexdigest()[:12]


def user_cache() -> Path:
    """Return Bramley's folder in the platform's cache folder of the user."""
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / "bramley"
    if platform.system() == "Darwin":
        return Path.home() / "Library" / "Caches" / "bramley"
    return Path.home() / ".cache" / "bramley"


def bin_folder(module: Module) -> Path:
    """Return the cache folder of one module's binaries."""
    name = f"{module.name}-{module.version}-{fingerprint(module)}"
    return user_cache() / "kube" / name / "bin"


def path_of(name: str) -> Path:
    """Return where a program's binary is, or will be once it is built."""
    program = PROGRAMS[name]
    return bin_folder(program.module) / program.name
