"""References to images as tart parses them, and where tart stores images on disk.

`host[:port]/path[:tag|@sha256:hex]`; a name without a slash is a local VM.
"""

from __future__ import annotations

import hashlib
import os
import string
from dataclasses import dataclass
from pathlib import Path

import msgspec

_CONFIG = "config.json"
_MAX_CONFIG_BYTES = 1024 * 1024
# Without these files tart neither lists nor runs a VM.
_BUNDLE_FILES = (_CONFIG, "disk.img", "nvram.bin")
DEFAULT_TAG = "latest"
_DIGEST = "sha256:"
_LETTERS = frozenset(string.ascii_letters + string.digits + "._-")
# The limits of registries, which are those of file names too.
_MAX_NAME_LENGTH = 255
_MAX_COMPONENT_LENGTH = 128


@dataclass(frozen=True, slots=True)
class Reference:
    """A remote image by tag or by digest."""

    host: str
    path: str
    tag: str = DEFAULT_TAG
    digest: str = ""

    @property
    def repository(self) -> str:
        """Return host and path without tag or digest; a port stays."""
        return f"{self.host}/{self.path}"

    @property
    def normalized(self) -> str:
        """Return the complete reference, with the default tag if it has none."""
        return self.with_digest(self.digest) if self.digest else f"{self.repository}:{self.tag}"

    def with_digest(self, digest: str) -> str:
        """Return the reference of one digest in the same repository."""
        return f"{self.repository}@{digest}"


def parse(image: str) -> Reference | None:
    """Parse the reference of a remote image; None if tart would not accept it."""
    host, _, rest = image.partition("/")
    path, at, digest = rest.partition("@")
    path, colon, tag = path.partition(":")
    if at and not _is_digest(digest):
        return None
    tag = tag if colon else DEFAULT_TAG
    name, _, port = host.partition(":")
    components = [name, *path.split("/"), tag, *([port] if port else [])]
    if len(host) + len(path) > _MAX_NAME_LENGTH or not all(map(_is_component, components)):
        return None
    return Reference(host, path, tag, digest)


def folder(home: Path, reference: Reference, name: str) -> Path:
    """Return where tart stores a tag (a link) or a digest (a folder) of an image's repository."""
    return registry_folder(home, reference) / reference.path / name


def registry_folder(home: Path, reference: Reference) -> Path:
    """Return where tart stores the images of a registry; it is locked (`flock`) during a pull."""
    # A colon separates folders in some APIs of macOS, so tart percent-encodes it.
    return home / "cache" / "OCIs" / reference.host.replace(":", "%3A")


def pull_folder(home: Path, reference: Reference) -> Path:
    """Return where tart stores the partial download of an image; the next pull of the same name continues it."""
    name = hashlib.md5(reference.normalized.encode(), usedforsecurity=False).hexdigest()
    return home / "tmp" / name


def cached(home: Path) -> dict[str, Reference]:
    """Return the complete images in tart's cache by tag and by digest, each with its digest; what tart did not write is left out."""
    root = home / "cache" / "OCIs"
    found: dict[str, Reference] = {}
    for top, folders, _ in os.walk(root):
        # Links to folders are listed as folders, and are not followed.
        for entry in folders:
            path = Path(top, entry)
            repository = path.parent.relative_to(root).as_posix().replace("%3A", ":")
            digest = path.resolve().name
            is_link = path.is_symlink()
            name = f"{repository}:{entry}" if is_link else f"{repository}@{entry}"
            reference = parse(f"{repository}@{digest}")
            is_inside = path.resolve().parent == path.parent.resolve()
            if reference is not None and is_inside and is_bundle(path):
                found[name] = reference
    return found


def is_bundle(folder: Path) -> bool:
    """Return whether a folder is a complete VM."""
    return all((folder / name).is_file() for name in _BUNDLE_FILES)


def is_linux(folder: Path) -> bool:
    """Return whether the configuration of a VM is readable and names Linux as its guest; tart's default is macOS."""
    try:
        with (folder / _CONFIG).open("rb") as file:
            config = msgspec.json.decode(file.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("os") == "linux"


def incomplete_folder(home: Path, name: str) -> Path | None:
    """Return the folder of a VM, or of an image by digest, that lacks files; None if it is complete or does not exist."""
    reference = parse(name)
    if reference is not None:
        path = folder(home, reference, reference.digest) if reference.digest else None
    else:
        path = home / "vms" / name if name and "/" not in name and name[0] != "." else None
    return path if path is not None and path.exists() and not is_bundle(path) else None


def _is_component(text: str) -> bool:
    """Return whether tart accepts this component of a reference; one with a leading dash would be parsed as an option."""
    has_length = 0 < len(text) <= _MAX_COMPONENT_LENGTH
    return has_length and _LETTERS.issuperset(text) and ".." not in text and text[0] != "-"


def _is_digest(text: str) -> bool:
    digits = text.removeprefix(_DIGEST)
    return (
        digits != text and len(digits) == 64 and all(each in "0123456789abcdef" for each in digits)
    )
