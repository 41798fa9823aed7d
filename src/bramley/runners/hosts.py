"""The hosts of a fleet as the pool controller sees them: whether they can run Pods, how many, and which images they have.

Pure: a `Host` is computed from a Node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bramley.api import conditions, names, quantities
from bramley.api.core import Node
from bramley.api.names import labels
from bramley.api.pod import Quantity
from bramley.api.staging import StagedImage, StagingReport, parse_report

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_MEBIBYTE = 1 << 20
# Reasons why a host takes no Pods, as the metric of filtered Nodes has them.
UNSCHEDULABLE, NOT_READY = "unschedulable", "not_ready"
_PRESSURE_REASONS = {
    "MemoryPressure": "memory_pressure",
    "DiskPressure": "disk_pressure",
    "PIDPressure": "pid_pressure",
}


@dataclass(frozen=True, slots=True)
class Host:
    """One Mac; `unusable` is empty, or the reason why it takes no new Pods."""

    name: str
    unusable: str = ""
    is_draining: bool = False
    pods: int = 0
    cpu_milli: int = 0
    memory_mb: int = 0
    # The golden labels of the Node: one per image that is on its disk.
    golden: frozenset[str] = frozenset()
    request: str = ""
    report: StagingReport | None = None

    @property
    def is_usable(self) -> bool:
        """Return whether the host takes new Pods."""
        return not self.unusable

    def has_image(self, image: str) -> bool:
        """Return whether the host has the image on its disk."""
        return labels.golden(image) in self.golden

    def is_requested(self, image: str) -> bool:
        """Return whether the host is requested to have the image."""
        return f'"{image}"' in self.request

    def staged(self, image: str) -> StagedImage | None:
        """Return the reported state of an image, or None."""
        reported = self.report.images if self.report is not None else ()
        return next((each for each in reported if each.image == image), None)

    def slots(self, *, cpu_milli: int, memory_mb: int) -> int:
        """Return how many Pods of this size fit on the empty host."""
        by_cpu = self.cpu_milli // cpu_milli if cpu_milli else self.pods
        by_memory = self.memory_mb // memory_mb if memory_mb else self.pods
        return max(0, min(self.pods, by_cpu, by_memory))


def node_selector(fleet: str) -> dict[str, str]:
    """Return the labels of the Nodes that the Pods of a fleet run on."""
    return {labels.OS: labels.DARWIN, labels.RUNTIME: labels.RUNTIME_TART, labels.FLEET: fleet}


def fleet_of(node: Node) -> str | None:
    """Return the fleet whose Pods can run on a Node, or None."""
    found = node.metadata.labels
    fleet = found.get(labels.FLEET)
    is_host = fleet is not None and node_selector(fleet).items() <= found.items()
    return fleet if is_host else None


def host_of(node: Node) -> Host:
    """Return the host of a Node."""
    allocatable = node.status.allocatable
    golden = (key for key in node.metadata.labels if key.startswith(labels.GOLDEN_PREFIX))
    return Host(
        name=node.name,
        unusable=_unusable(node),
        is_draining=is_draining(node),
        pods=int(_amount(allocatable.get("pods", 0))),
        cpu_milli=int(_amount(allocatable.get("cpu", 0)) * 1000),
        memory_mb=int(_amount(allocatable.get("memory", 0)) / _MEBIBYTE),
        golden=frozenset(golden),
        request=node.metadata.annotations.get(names.annotations.STAGE_IMAGES, ""),
        report=parse_report(node.metadata.annotations.get(names.annotations.STAGED_IMAGES, "")),
    )


def is_draining(node: Node) -> bool:
    """Return whether a Node is cordoned or being deleted."""
    return node.spec.unschedulable or node.deleting


def capacity(hosts: Iterable[Host], *, cpu_milli: int, memory_mb: int) -> int:
    """Return how many Pods of this size fit on all usable hosts together."""
    return sum(
        host.slots(cpu_milli=cpu_milli, memory_mb=memory_mb) for host in hosts if host.is_usable
    )


def _unusable(node: Node) -> str:
    if is_draining(node):
        return UNSCHEDULABLE
    if not conditions.is_true(node.status.conditions, "Ready"):
        return NOT_READY
    for pressure in _PRESSURES:
        if conditions.is_true(node.status.conditions, pressure):
            return _PRESSURE_REASONS[pressure]
    return ""


def _amount(quantity: Quantity) -> float:
    try:
        return float(quantities.parse(str(quantity)).value)
    except quantities.InvalidQuantity:
        return 0.0
