"""Headers of native files, and small ELF files with a search path, written from the specifications of the formats."""

from __future__ import annotations

import struct

ARM64, X86_64 = 0x0100000C, 0x01000007


def mach_o(cpu: int = ARM64, *, body: bytes = b"") -> bytes:
    return struct.pack("<IIIIIIII", 0xFEEDFACF, cpu, 0, 2, 0, 0, 0, 0) + body


def universal(*cpus: int) -> bytes:
    slices = b"".join(struct.pack(">IIIII", cpu, 0, 4096, 32, 14) for cpu in cpus)
    return struct.pack(">II", 0xCAFEBABE, len(cpus)) + slices


def elf(search_path: str | None, *, machine: int = 0x3E, tags: tuple[int, ...] = (29,)) -> bytes:
    """Return a library whose strings have another address than file offset, as linkers produce it."""
    strings = b"\0libpython.so\0" + (search_path or "").encode() + b"\0behind\0"
    shift, table = 0x10000, 64 + 2 * 56
    entries = [(5, shift + 512), *((tag, 14) for tag in tags if search_path is not None), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = 512 + len(strings)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, shift, shift, size, size, 4096)
    dynamic_header = struct.pack(
        "<IIQQQQQQ", 2, 4, table, shift + table, 0, len(dynamic), len(dynamic), 8
    )
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    return (header + load + dynamic_header + dynamic).ljust(512, b"\0") + strings
