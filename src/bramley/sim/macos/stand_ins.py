"""Stand-ins for third-party programs: small archives of the same shape, the same bytes for the same version.

In process the model runs instead of them; behind SSH they are scripts that execute the model's program of that name.
"""

from __future__ import annotations

import gzip
import io
import plistlib
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

_EXECUTABLE = 0o755
_PLAIN = 0o644


def program(name: str, version: str) -> bytes:
    """Return a script that stands in for a program of this version."""
    # The shims of the model's programs are where macOS has its own.
    return _script(name, version, f'exec /usr/bin/{name} "$@"')


def daemon(name: str, version: str) -> bytes:
    """Return a script that stands in for a daemon: it prints its version, or else runs until it is killed."""
    return _script(name, version, "exec sleep 1000000000")


def _script(name: str, version: str, last: str) -> bytes:
    version_line = f"{name}, version {version}" if name == "node_exporter" else version
    version_case = f'case "${{1-}}" in version | --version) echo "{version_line}" && exit ;; esac'
    return f"#!/bin/sh\n# simulated {name} {version}\n{version_case}\n{last}\n".encode()


def tart(version: str, *, executable: bytes | None = None) -> bytes:
    """Return an archive with tart's bundle; `executable` may be the simulated tart."""
    info = {
        "CFBundleExecutable": "tart",
        "CFBundleIdentifier": "com.github.cirruslabs.tart",
        "CFBundleShortVersionString": version,
    }
    files = {
        "tart.app/Contents/Info.plist": plistlib.dumps(info),
        "tart.app/Contents/MacOS/tart": executable or program("tart", version),
        "tart.app/Contents/embedded.provisionprofile": f"simulated profile {version}\n".encode(),
    }
    return archive(files, executable=("tart.app/Contents/MacOS/tart",))


def tailscale(version: str) -> bytes:
    """Return an archive with tailscale and its daemon."""
    files = {
        "tailscale": program("tailscale", version),
        "tailscaled": daemon("tailscaled", version),
    }
    return archive(files, executable=tuple(files))


def node_exporter(version: str) -> bytes:
    """Return the file of node_exporter."""
    return daemon("node_exporter", version)


def actions_runner(version: str) -> bytes:
    """Return an archive with the programs of a GitHub Actions runner."""
    files = {
        "config.sh": program("config.sh", version),
        "bin/runsvc.sh": program("runsvc.sh", version),
    }
    return archive(files, executable=tuple(files))


def archive(files: Mapping[str, bytes], *, executable: tuple[str, ...] = ()) -> bytes:
    """Return a compressed archive of these files and their folders; the same files make the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        parents = {str(parent) for name in files for parent in PurePosixPath(name).parents}
        for folder in sorted(parents - {"."}):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, _EXECUTABLE
            tar.addfile(member)
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = _EXECUTABLE if name in executable else _PLAIN
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)
