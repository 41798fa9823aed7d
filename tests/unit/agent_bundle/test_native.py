"""Native files are known by their first bytes, and an archive takes none that is for another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.app.agent_bundle import native
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import Platform
from tests.unit.agent_bundle.binaries import ARM64, X86_64, elf, mach_o, universal


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (mach_o(ARM64), {"macos-arm64"}),
        (mach_o(X86_64), {"macos-x86_64"}),
        (universal(X86_64, ARM64), {"macos-arm64", "macos-x86_64"}),
        (elf(None), {"linux-x86_64"}),
        (elf(None, machine=0xB7), {"linux-arm64"}),
        (b"\x7fELF\x01\x01" + bytes(60), {"unknown"}),
        (b"\xca\xfe\xba\xbe\0\0\0\x41" + bytes(60), set()),
        (b"#!/bin/sh\n", set()),
        (b"", set()),
        (b"\xcf\xfa\xed\xfe", set()),
    ],
)
def test_the_machine_of_a_file_is_told_by_its_first_bytes(head: bytes, told: set[str]) -> None:
    assert native.platforms(head) == told


@pytest.mark.parametrize("wrong", [elf(None), mach_o(X86_64), b"\x7fELF\x01\x01" + bytes(60)])
def test_a_file_for_another_machine_is_refused_by_its_name(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "right.so").write_bytes(universal(X86_64, ARM64))
    (tmp_path / "wrong.so").write_bytes(wrong)

    with pytest.raises(BadConfiguration, match=r"wrong\.so is for .* would not run on macos-arm64"):
        native.require(tmp_path, Platform.MACOS_ARM64)
