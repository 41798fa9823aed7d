"""The code's archive for Macs: our modules and the pinned wheels, for the interpreter of an archive that was made before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bramley.app.agent_bundle import code
from bramley.app.agent_bundle.archive import Archive, ArchiveSpec, Source, make
from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind, Manifest, Platform
from tools.agent_bundle import wheels


def build(interpreter: Path, folder: Path, *, given: Sequence[Path] | None = None) -> Archive:
    """Make the code's archive for the interpreter in this archive, from these wheels or from those that the lock pins."""
    target = agent_archive.read(interpreter, Kind.INTERPRETER)
    if target.platform is not Platform.MACOS_ARM64:
        raise BadConfiguration(
            f"{interpreter} is for {target.platform}, and the wheels are for Macs; for this machine's own pair"
            " run: python -m tools.agent_bundle linux"
        )
    closure = code.agent_imports()
    used = given if given is not None else wheels.fetched(target.python)
    files: dict[str, Source] = {}
    for wheel in used:
        files |= wheels.files_of(wheel)
    tree = code.code_tree(files, target.version, modules=closure.modules.values())
    return make(tree, _about(target, used), folder)


def _about(target: Manifest, used: Sequence[Path]) -> ArchiveSpec:
    return ArchiveSpec(
        Kind.CODE,
        name=code.NAME,
        release=code.release(),
        platform=target.platform,
        python=target.python,
        interpreter=target.version,
        inputs=tuple((wheel.name, wheels.digest(wheel)) for wheel in used),
    )
