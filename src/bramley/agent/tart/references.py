"""Names of images as tart reads them, and where tart keeps them on disk.

`host[:port]/path[:tag|@sha256:hex]`; whatever has no slash is the name of a local VM.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

DEFAULT_TAG = "latest"
_DIGEST = "sha256:"
_LETTERS = frozenset(string.ascii_letters + string.digits + "._-")
# What registries allow; longer ones are no names of files either.
_LONGEST_NAME = 255
_LONGEST_WORD = 128


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
    def spelt(self) -> str:
        """Return the whole name, with its tag also where it was left out."""
        return self.at(self.digest) if self.digest else f"{self.repository}:{self.tag}"

    def at(self, digest: str) -> str:
        """Return the name of one digest of the same repository."""
        return f"{self.repository}@{digest}"


def parse(image: str) -> Reference | None:
    """Return the parts of a remote name; None if it is none that tart would take."""
    host, _, rest = image.partition("/")
    path, at, digest = rest.partition("@")
    path, colon, tag = path.partition(":")
    if at and not _is_digest(digest):
        return None
    tag = tag if colon else DEFAULT_TAG
    name, _, port = host.partition(":")
    words = [name, *path.split("/"), tag, *([port] if port else [])]
    if len(host) + len(path) > _LONGEST_NAME or not all(map(_is_word, words)):
        return None
    return Reference(host, path, tag, digest)


def folder(home: Path, reference: Reference, name: str) -> Path:
    """Return where tart keeps a tag (a link) or a digest (a folder) of an image's repository."""
    # A colon in a folder's name means something else to macOS, so tart writes a port percent-encoded.
    host = reference.host.replace(":", "%3A")
    return home / "cache" / "OCIs" / host / reference.path / name


def _is_word(text: str) -> bool:
    """Tell whether tart takes this as a part of a name; one that begins with a dash would be an option to it."""
    is_long = not 0 < len(text) <= _LONGEST_WORD
    return not is_long and _LETTERS.issuperset(text) and ".." not in text and text[0] != "-"


def _is_digest(text: str) -> bool:
    digits = text.removeprefix(_DIGEST)
    return (
        digits != text and len(digits) == 64 and all(each in "0123456789abcdef" for each in digits)
    )
