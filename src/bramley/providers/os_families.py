"""Families of macOS releases: which host and which image belong to one, and which image is its newest. Pure.

A spec says `Tahoe` or `macos-tahoe-26.3`: only the family counts, because providers withdraw point releases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bramley.api.scaleway_machine import os_family

VersionKey = tuple[tuple[int, ...], bool, tuple[tuple[int, int, str], ...]]


@dataclass(frozen=True, slots=True)
class Image:
    """An image that a host can be reinstalled with; without types it runs on all of them."""

    id: str
    os_names: tuple[str, ...]
    version: str
    is_beta: bool = False
    types: frozenset[str] = frozenset()
    xcode_version: str = ""


def is_of_family(os_names: Iterable[str], os: str) -> bool:
    """Return whether one of these names is of the same family as `os`; an empty `os` has no family."""
    family = os_family(os)
    return family != "" and any(os_family(name) == family for name in os_names)


def newest_image(images: Iterable[Image], *, os: str, type: str) -> Image | None:
    """Return the newest image of a family for a type of host; a beta only if there is nothing else."""
    fitting = [
        image
        for image in images
        if is_of_family(image.os_names, os) and (not image.types or type in image.types)
    ]
    return max(fitting, key=_rank, default=None)


def version_key(version: str) -> VersionKey:
    """Return a key that orders versions: 26.10 is newer than 26.9, and 27.0 newer than 27.0-beta2."""
    suffix = version.strip().lstrip("0123456789.")
    numbers = version.strip().removesuffix(suffix)
    parts = [int(each) for each in numbers.split(".") if each]
    while parts and parts[-1] == 0:
        parts.pop()
    words = re.findall(r"[0-9]+|[^0-9]+", suffix)
    natural = tuple((1, int(each), "") if each.isdecimal() else (0, 0, each) for each in words)
    return tuple(parts), not suffix, natural


def _rank(image: Image) -> tuple[bool, VersionKey, VersionKey, str]:
    # The id makes the choice independent of the order of the list.
    return (
        not image.is_beta,
        version_key(image.version),
        version_key(image.xcode_version),
        image.id,
    )
