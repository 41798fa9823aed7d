"""The layout of TART_HOME, and names of images: `host[:port]/namespace…/repository[:tag|@sha256:hex]`.

Bundles are folders with config.json, disk.img and nvram.bin; anything less is invisible. A tag is an absolute link to the
folder of a digest.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from bramley.sim.tart.failures import Failed, does_not_exist

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_HEX = frozenset("0123456789abcdef")
CONFIG, DISK, NVRAM = "config.json", "disk.img", "nvram.bin"
STATE, SOCKET, MANIFEST = "state.vzvmsave", "control.sock", "manifest.json"
MARKER = ".explicitly-pulled"
FILES = (CONFIG, DISK, NVRAM)


class Reference(NamedTuple):
    """An image in a registry; exactly one of `tag` and `digest` is set."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def base(self) -> str:
        """Return the name without tag or digest."""
        return f"{self.host}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.base}@{self.digest}" if self.digest else f"{self.base}:{self.tag}"

    def at(self, digest: str) -> "Reference":
        """Return the same repository's image by digest."""
        return Reference(self.host, self.repository, digest=digest)


def find_reference(name: str) -> Reference | None:
    """Return the image reference, or None for what can only be a local name."""
    host, slash, rest = name.partition("/")
    rest, _, digest = rest.partition("@")
    repository, colon, tag = rest.partition(":")
    if digest and (colon or not _is_digest(digest)):
        return None
    if not digest:
        tag = tag if colon else "latest"
    parts = repository.split("/")
    words = [*parts, host.replace(":", "", 1), *([] if digest else [tag])]
    is_remote = bool(slash) and all(_is_word(word) for word in words)
    return Reference(host, repository, tag, digest) if is_remote else None


class Cached(NamedTuple):
    """One row of the image cache: a digest's folder, or a tag that links to one."""

    name: str
    folder: str
    is_tag: bool


def vms(home: str) -> str:
    """Return the folder of local VMs."""
    return os.path.join(home, "vms")


def vm(home: str, name: str) -> str:
    """Return the folder of one local VM."""
    return os.path.join(home, "vms", name)


def staging(home: str) -> str:
    """Return the folder of staged work."""
    return os.path.join(home, "tmp")


def images(home: str) -> str:
    """Return the folder of the image cache."""
    return os.path.join(home, "cache", "OCIs")


def registry_host(home: str, host: str) -> str:
    """Return the folder of one registry; a port's colon is escaped."""
    return os.path.join(images(home), host.replace(":", "%3A"))


def image(home: str, reference: Reference) -> str:
    """Return the folder of a digest, or the link of a tag."""
    folder = os.path.join(registry_host(home, reference.host), *reference.repository.split("/"))
    return os.path.join(folder, reference.digest or reference.tag)


def prepare(home: str) -> None:
    """Create the folders; fail if TART_HOME cannot be created."""
    try:
        for folder in (vms(home), staging(home), images(home)):
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Failed(1, f"TART_HOME is invalid: {home}: {error.strerror}") from error


def is_complete(bundle: str) -> bool:
    """Return whether a folder is a VM."""
    return all(os.path.exists(os.path.join(bundle, file)) for file in FILES)


def existing_vm(home: str, name: str) -> str:
    """Return the folder of an existing local VM; an incomplete one fails differently from a missing one."""
    bundle = vm(home, name)
    if "/" in name or not os.path.exists(os.path.join(bundle, CONFIG)):
        raise does_not_exist(name)
    if not is_complete(bundle):
        raise Failed(1, "VM is missing some of its files (config.json, disk.img or nvram.bin)")
    return bundle


def existing_bundle(home: str, name: str) -> str:
    """Return the folder of a local VM or a cached image."""
    reference = find_reference(name)
    if reference is None:
        return existing_vm(home, name)
    folder = image(home, reference)
    if not is_complete(folder):
        raise does_not_exist(name)
    return os.path.realpath(folder)


def names(home: str) -> list[str]:
    """Return the names of local VMs, sorted."""
    return sorted(name for name in _entries(vms(home)) if is_complete(vm(home, name)))


def cached(home: str) -> list[Cached]:
    """Return every tag and every digest, sorted by name."""
    root = images(home)
    rows = [row for host in _entries(root) for row in _cached_under(root, host)]
    return sorted(rows, key=lambda row: row.name)


def _cached_under(root: str, relative: str) -> Iterator[Cached]:
    for entry in _entries(os.path.join(root, relative)):
        path = os.path.join(root, relative, entry)
        name = relative.replace("%3A", ":")
        if os.path.islink(path):
            if is_complete(path):
                yield Cached(f"{name}:{entry}", path, is_tag=True)
        elif entry.startswith("sha256:"):
            if is_complete(path):
                yield Cached(f"{name}@{entry}", path, is_tag=False)
        elif os.path.isdir(path):
            yield from _cached_under(root, os.path.join(relative, entry))


def links(home: str) -> Iterator[str]:
    """Yield every tag, dangling ones too."""
    for folder, folders, files in os.walk(images(home)):
        for entry in (*folders, *files):
            path = os.path.join(folder, entry)
            if os.path.islink(path):
                yield path


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_word(word: str) -> bool:
    return bool(word) and set(word) <= _LETTERS and ".." not in word


def _is_digest(text: str) -> bool:
    kind, _, digits = text.partition(":")
    return kind == "sha256" and len(digits) == 64 and set(digits) <= _HEX
