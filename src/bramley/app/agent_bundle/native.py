"""Which machine a native file is for, told by its first bytes: an archive must hold none for another one.

Knows Mach-O, thin and universal, and ELF; anything else is no native file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from bramley.app.agent_bundle import tree
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import Platform

_HEAD_BYTES = 4096
_MACH_O_64 = b"\xcf\xfa\xed\xfe"
# In the other byte order, of 32 bits, and both at once: no Mac of today runs them.
_MACH_O_OLD = (b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xfe\xed\xfa\xce")
_UNIVERSAL = b"\xca\xfe\xba\xbe"
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_ELF = b"\x7fELF"
_MACH_O_CPU = {0x0100000C: "macos-arm64", 0x01000007: "macos-x86_64"}
_ELF_MACHINE = {0xB7: "linux-arm64", 0x3E: "linux-x86_64"}
# Class files of Java begin like a universal binary, with a version where that has the count of its slices.
_MOST_SLICES = 20


def platforms(head: bytes) -> frozenset[str]:
    """Return for which machines a file is that begins like this; empty for what is no native file."""
    if head.startswith(_MACH_O_64) and len(head) >= 8:
        return frozenset({_MACH_O_CPU.get(struct.unpack_from("<I", head, 4)[0], "macos-unknown")})
    if head.startswith(_UNIVERSAL) and len(head) >= 8:
        return frozenset(_slices(head))
    if head.startswith(_ELF_64_LITTLE) and len(head) >= 20:
        return frozenset({_ELF_MACHINE.get(struct.unpack_from("<H", head, 18)[0], "linux-unknown")})
    return frozenset({"unknown"}) if head.startswith((_ELF, *_MACH_O_OLD)) else frozenset()


def _slices(head: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from(">I", head, 4)
    if count <= _MOST_SLICES:
        for number in range(count):
            (cpu,) = struct.unpack_from(">I", head, 8 + 20 * number)
            yield _MACH_O_CPU.get(cpu, "macos-unknown")


def found_in(folder: Path) -> dict[str, frozenset[str]]:
    """Return the native files of a folder by name, each with the machines it is for."""
    told = ((name, platforms(_head(folder / name))) for name in tree.names_in(folder))
    return {name: machines for name, machines in told if machines}


def _head(path: Path) -> bytes:
    if path.is_symlink():
        return b""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def require(folder: Path, platform: Platform) -> None:
    """Refuse a folder with a native file that does not run on this platform."""
    for name, machines in found_in(folder).items():
        if platform not in machines:
            raise BadConfiguration(
                f"{name} is for {', '.join(sorted(machines))} and would not run on {platform};"
                " give files made for that machine"
            )
