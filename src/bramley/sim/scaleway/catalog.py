"""What the simulated Scaleway offers: zones, types of servers, and the images of macOS."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

_GB = 10**9


@dataclass(frozen=True, slots=True)
class ServerType:
    """A model of a Mac."""

    name: str
    cpu: str
    cores: int
    memory_gb: int
    disk_gb: int
    model: str

    def json(self, *, has_stock: bool) -> dict[str, Any]:
        """Return the type as Scaleway shows it."""
        network = {
            "public_bandwidth_bps": _GB,
            "supported_bandwidth": [_GB],
            "default_public_bandwidth": _GB,
        }
        return {
            "name": self.name,
            "stock": "high_stock" if has_stock else "no_stock",
            "cpu": {"name": self.cpu, "core_count": self.cores, "frequency": 3490, "sockets": 1, "threads_per_core": 1},
            "memory": {"capacity": self.memory_gb * _GB, "type": "LPDDR5"},
            "disk": {"capacity": self.disk_gb * _GB, "type": "ssd"},
            "gpu": {"count": 10},
            "npu": {"count": 16},
            "network": network,
            "minimum_lease_duration": "86400s",
            "default_os": DEFAULT_OS.json(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Os:
    """An image of macOS; `fast` are the types on which it is delivered without a reinstallation."""

    name: str
    family: str
    version: str
    xcode: str
    types: tuple[str, ...]
    is_beta: bool = False

    @property
    def id(self) -> str:
        """Return the id, which follows from the name."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"scaleway/os/{self.name}"))

    @property
    def macos(self) -> str:
        """Return the version of macOS, without the suffix of a beta."""
        return self.version.partition("-")[0]

    def json(self) -> dict[str, Any]:
        """Return the image as Scaleway shows it."""
        supported = [
            {"server_type": each, "fast_delivery_available": self is DEFAULT_OS}
            for each in self.types
        ]
        return {
            "id": self.id,
            "name": self.name,
            "label": f"macOS {self.family} {self.version}",
            "image_url": f"https://images.invalid/{self.name}.png",
            "family": self.family,
            "is_beta": self.is_beta,
            "version": self.version,
            "xcode_version": self.xcode,
            "release_notes_url": "",
            "description": f"macOS {self.family} with Xcode {self.xcode}",
            "tags": [],
            "supported_server_types": supported,
            "compatible_server_types": list(self.types),
        }


ZONES = ("fr-par-1", "fr-par-3", "nl-ams-1")
TYPES = {
    each.name: each
    for each in (
        ServerType("M1-M", "Apple M1", 8, 8, 256, "Macmini9,1"),
        ServerType("M2-M", "Apple M2", 8, 16, 256, "Mac14,3"),
        ServerType("M2-L", "Apple M2 Pro", 10, 16, 512, "Mac14,12"),
        ServerType("M4-S", "Apple M4", 10, 16, 256, "Mac16,10"),
        ServerType("M4-M", "Apple M4 Pro", 12, 24, 512, "Mac16,11"),
    )
}
DEFAULT_TYPE = "M2-L"
_ALL = tuple(TYPES)
_NOT_M1 = _ALL[1:]
_M4 = ("M4-S", "M4-M")
DEFAULT_OS = Os("macos-tahoe-26.3", "Tahoe", "26.3", "26.2", _ALL)
IMAGES = (
    Os("macos-sonoma-14.8", "Sonoma", "14.8", "15.4", _ALL[:3]),
    Os("macos-sequoia-15.6", "Sequoia", "15.6", "16.4", _ALL),
    Os("macos-sequoia-15.7", "Sequoia", "15.7", "16.4", _ALL),
    Os("macos-tahoe-26.2", "Tahoe", "26.2", "26.1", _ALL),
    DEFAULT_OS,
    Os("macos-tahoe-26.10", "Tahoe", "26.10", "26.4", _M4),
    Os("macos-tahoe-26.11-beta1", "Tahoe", "26.11-beta1", "26.5", _ALL, is_beta=True),
    Os("macos-golden-gate-27.0-beta2", "Golden Gate", "27.0-beta2", "27.0", _NOT_M1, is_beta=True),
)  # fmt: skip
